//! The Lease service. Renewals touch memory only: leases begin anew after a restart.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use podwire_wire::etcd::lease_server::Lease;
use podwire_wire::etcd::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest,
    LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
};
use tonic::{Request, Response, Status, Streaming};

use super::Etcd;
use super::kv::unexpected;
use crate::engine::leases::MAX_TTL;
use crate::engine::refused::Refused;
use crate::engine::writer::{Answer, Work};

/// The shortest lease, in seconds: one and a half of etcd's usual election timeout, rounded up.
const MIN_TTL: i64 = 2;

/// A number for a lease: any positive one that is not taken.
fn any_id() -> Result<i64, Status> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Status::internal(format!("no random number: {error}")))?;
    Ok((i64::from_le_bytes(bytes) & i64::MAX).max(1))
}

#[tonic::async_trait]
impl Lease for Etcd {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        if ttl > MAX_TTL {
            return Err(Refused::LeaseTtlTooLarge.into());
        }
        let (id, ttl) = (if id == 0 { any_id()? } else { id }, ttl.max(MIN_TTL));
        match self.engine().submit(Work::Grant(id, ttl)).await? {
            Answer::Done(revision) => {
                let header = self.header(revision);
                Ok(Response::new(LeaseGrantResponse { header, id, ttl, error: String::new() }))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        match self.engine().submit(Work::Revoke(request.into_inner().id)).await? {
            Answer::Done(revision) => {
                Ok(Response::new(LeaseRevokeResponse { header: self.header(revision) }))
            }
            other => Err(unexpected(&other)),
        }
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (etcd, incoming) = (self.clone(), request.into_inner());
        let answers = stream::unfold((etcd, incoming), |(etcd, mut incoming)| async move {
            let stopping = etcd.0.stopping.clone();
            let received = tokio::select! {
                biased;
                () = stopping.cancelled() => Err(Status::unavailable("etcdserver: server stopped")),
                received = incoming.message() => received,
            };
            let answer = match received {
                Ok(Some(LeaseKeepAliveRequest { id })) => {
                    // The header comes first: a renewal is not told with a revision at which the lease was gone.
                    let header = etcd.header_now();
                    let shared = etcd.engine().shared();
                    let now = shared.clock.now_ms();
                    let ttl = shared.write().leases.renew(id, now).unwrap_or(0);
                    Ok(LeaseKeepAliveResponse { header, id, ttl })
                }
                Ok(None) => return None,
                Err(status) => Err(status),
            };
            Some((answer, (etcd, incoming)))
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        self.engine().open()?;
        let now = self.engine().shared().clock.now_ms();
        let index = self.engine().read();
        let header = self.header(index.revision());
        let answer = match index.leases.get(id) {
            None => LeaseTimeToLiveResponse { header, id, ttl: -1, ..LeaseTimeToLiveResponse::default() },
            Some(lease) => {
                let copy = |key: &crate::engine::key::Key| bytes::Bytes::copy_from_slice(key.as_bytes());
                let keys = if keys { lease.keys.iter().map(copy).collect() } else { Vec::new() };
                let (ttl, granted_ttl) = (lease.remaining(now), lease.ttl);
                LeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }
            }
        };
        Ok(Response::new(answer))
    }

    async fn lease_leases(
        &self,
        _request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        self.engine().open()?;
        let index = self.engine().read();
        let leases = index.leases.iter().map(|(id, _)| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header: self.header(index.revision()), leases }))
    }
}
