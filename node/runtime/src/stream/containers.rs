//! The runtime's side of the streaming server.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{
    container::exec,
    context::Context,
    recovery::records::SandboxPhase,
    stream::{
        backend::{BackendError, Duplex, Session, StreamBackend, Streams},
        port_forward,
    },
};

/// Opens sessions in the runtime's containers and pods.
pub(crate) struct Backend {
    pub(crate) ctx: Arc<Context>,
}

impl StreamBackend for Backend {
    fn exec(
        &self,
        container_id: &str,
        argv: &[String],
        streams: Streams,
    ) -> BoxFuture<'_, Result<Session, BackendError>> {
        let (id, argv) = (container_id.to_owned(), argv.to_vec());
        Box::pin(async move { exec::session(&self.ctx, &id, &argv, streams).await })
    }

    fn attach(&self, container_id: &str, streams: Streams) -> BoxFuture<'_, Result<Session, BackendError>> {
        let id = container_id.to_owned();
        Box::pin(async move { exec::attach(&self.ctx, &id, streams).await })
    }

    fn port_forward(
        &self,
        sandbox_id: &str,
        port: u16,
    ) -> BoxFuture<'_, Result<Box<dyn Duplex>, BackendError>> {
        let id = sandbox_id.to_owned();
        Box::pin(async move {
            let sandbox =
                self.ctx.registry.sandbox(&id).ok_or_else(|| BackendError::NotFound { id: id.clone() })?;
            if sandbox.phase() != SandboxPhase::Ready {
                return Err(BackendError::NotRunning { id });
            }
            let dialled =
                tokio::task::spawn_blocking(move || port_forward::dial(sandbox.netns().as_deref(), port))
                    .await;
            let failed = |source| BackendError::Dial { port, source };
            let stream = dialled.map_err(std::io::Error::other).map_err(failed)?.map_err(failed)?;
            let stream = tokio::net::TcpStream::from_std(stream).map_err(failed)?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}
