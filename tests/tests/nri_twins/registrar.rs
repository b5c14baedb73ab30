//! The kubelet's part towards a plugin of its own kind: asks who it is and tells it that it is registered.

use std::path::Path;

use anyhow::{Result, ensure};
use bytes::{Buf, BufMut};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

/// Messages as they are on the wire.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

async fn call(grpc: &mut Grpc<Channel>, method: &'static str, message: Vec<u8>) -> Result<Vec<u8>> {
    grpc.ready().await?;
    let answer = grpc.unary(Request::new(message), PathAndQuery::from_static(method), Raw).await?;
    Ok(answer.into_inner())
}

/// Registers the plugin behind a socket, which must call itself `name`.
pub async fn register(socket: &Path, name: &str) -> Result<()> {
    let mut grpc = Grpc::new(podwire_wire::unix::channel(socket));
    let info = call(&mut grpc, "/pluginregistration.Registration/GetInfo", Vec::new()).await?;
    let named = info.windows(name.len()).any(|part| part == name.as_bytes());
    ensure!(named, "it does not call itself {name}: {info:?}");
    // RegistrationStatus with plugin_registered (1) true.
    call(&mut grpc, "/pluginregistration.Registration/NotifyRegistrationStatus", vec![0x08, 0x01]).await?;
    Ok(())
}
