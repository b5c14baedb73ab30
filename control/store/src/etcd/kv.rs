//! The KV service: reads from the index, writes through the writer.

use podwire_wire::etcd::kv_server::Kv;
use podwire_wire::etcd::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use prost::Message;
use tonic::{Request, Response, Status};

use super::Etcd;
use crate::engine::refused::Refused;
use crate::engine::writer::{Answer, Work};
use crate::engine::{check, read};

/// An answer of another kind than was asked for; cannot be.
pub(super) fn unexpected(answer: &Answer) -> Status {
    Status::internal(format!("an answer of another kind: {answer:?}"))
}

impl Etcd {
    fn check_size(&self, size: usize) -> Result<(), Refused> {
        if size > self.config().max_request_bytes { Err(Refused::RequestTooLarge) } else { Ok(()) }
    }

    async fn read_range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        check::range(&request)?;
        self.engine().open()?;
        let gathered = {
            let index = self.engine().read();
            read::gather(&index, &request, index.revision())?
        };
        let mut answer = if gathered.is_on_disk() {
            let read = tokio::task::spawn_blocking(move || read::answer(gathered, &request));
            read.await.map_err(|error| Status::internal(error.to_string()))??
        } else {
            read::answer(gathered, &request)?
        };
        answer.header = self.filled(answer.header);
        Ok(answer)
    }
}

#[tonic::async_trait]
impl Kv for Etcd {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        self.read_range(request.into_inner()).await.map(Response::new)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        check::put(&request)?;
        self.check_size(request.encoded_len())?;
        match self.engine().submit(Work::Put(request)).await? {
            Answer::Put(answer) => {
                Ok(Response::new(PutResponse { header: self.filled(answer.header), ..answer }))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        if request.key.is_empty() {
            return Err(Refused::EmptyKey.into());
        }
        match self.engine().submit(Work::DeleteRange(request)).await? {
            Answer::DeleteRange(answer) => {
                Ok(Response::new(DeleteRangeResponse { header: self.filled(answer.header), ..answer }))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = request.into_inner();
        check::txn(&request, self.config().max_txn_ops)?;
        if !check::is_read_only(&request) {
            self.check_size(request.encoded_len())?;
        }
        match self.engine().submit(Work::Txn(request)).await? {
            Answer::Txn(answer) => {
                Ok(Response::new(TxnResponse { header: self.filled(answer.header), ..answer }))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        match self.engine().submit(Work::Compact(request.into_inner())).await? {
            Answer::Compact(answer) => {
                Ok(Response::new(CompactionResponse { header: self.filled(answer.header) }))
            }
            other => Err(unexpected(&other)),
        }
    }
}
