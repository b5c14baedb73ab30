//! The Maintenance, Cluster and Auth services: a cluster of one, whose authentication is off.

use std::sync::atomic::Ordering;

use futures::StreamExt;
use futures::stream::BoxStream;
use podwire_wire::etcd::alarm_request::AlarmAction;
use podwire_wire::etcd::auth_server::Auth;
use podwire_wire::etcd::cluster_server::Cluster;
use podwire_wire::etcd::maintenance_server::Maintenance;
use podwire_wire::etcd::{
    AlarmMember, AlarmRequest, AlarmResponse, AlarmType, AuthStatusRequest, AuthStatusResponse,
    AuthenticateRequest, AuthenticateResponse, DefragmentRequest, DefragmentResponse, DowngradeInfo,
    HashKvRequest, HashKvResponse, HashRequest, HashResponse, Member, MemberListRequest, MemberListResponse,
    SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{ETCD_VERSION, Etcd, TERM, hash};
use crate::engine::export::Export;
use crate::engine::read;

/// The version of the files that a snapshot is in.
pub(super) const STORAGE_VERSION: &str = "3.6.0";

/// What one answer of a snapshot carries, as upstream's.
const BLOB: usize = 64 << 10;

impl Etcd {
    fn alarms(&self) -> Vec<AlarmMember> {
        let raised = self.engine().shared().alarm.load(Ordering::Relaxed);
        let alarm = AlarmMember { member_id: self.0.member_id, alarm: AlarmType::Nospace.into() };
        if raised { vec![alarm] } else { Vec::new() }
    }

    async fn hash_at(&self, asked: i64) -> Result<HashKvResponse, Status> {
        self.engine().open()?;
        let etcd = self.clone();
        let hashed = tokio::task::spawn_blocking(move || {
            let index = etcd.engine().read();
            let newest = index.revision();
            // Before the beginning there is nothing, and a hash of that.
            let at = if asked < 0 { 0 } else { read::revision(&index, asked, newest)? };
            let hash = hash::hash(&index, at)?;
            let compact_revision = index.compacted().map_or(-1, read::signed);
            let hash_revision = if asked < 0 { asked } else { read::signed(at) };
            let header = etcd.header(newest);
            Ok::<_, crate::engine::refused::Refused>(HashKvResponse {
                header,
                hash,
                compact_revision,
                hash_revision,
            })
        });
        Ok(hashed.await.map_err(|error| Status::internal(error.to_string()))??)
    }
}

#[tonic::async_trait]
impl Maintenance for Etcd {
    async fn alarm(&self, request: Request<AlarmRequest>) -> Result<Response<AlarmResponse>, Status> {
        let request = request.into_inner();
        let mine = request.member_id == 0 || request.member_id == self.0.member_id;
        let space = matches!(request.alarm(), AlarmType::Nospace | AlarmType::None);
        let alarm = &self.engine().shared().alarm;
        let alarms = match request.action() {
            AlarmAction::Get => self.alarms(),
            AlarmAction::Activate => {
                if mine && request.alarm() == AlarmType::Nospace {
                    alarm.store(true, Ordering::Relaxed);
                }
                self.alarms()
            }
            AlarmAction::Deactivate => {
                let were = self.alarms();
                if mine && space {
                    alarm.store(false, Ordering::Relaxed);
                }
                were
            }
        };
        Ok(Response::new(AlarmResponse { header: self.header_now(), alarms }))
    }

    async fn status(&self, _request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        self.engine().open()?;
        let (revision, held) = {
            let index = self.engine().read();
            (index.revision(), read::signed(index.held_bytes()))
        };
        let mut errors: Vec<String> = self
            .alarms()
            .iter()
            .map(|alarm| format!("memberID:{} alarm:NOSPACE ", alarm.member_id))
            .collect();
        errors.extend(self.engine().health().err().map(|error| error.to_string()));
        Ok(Response::new(StatusResponse {
            header: self.header(revision),
            version: ETCD_VERSION.into(),
            db_size: held,
            leader: self.0.member_id,
            // No raft: as many entries as revisions.
            raft_index: revision,
            raft_term: TERM,
            raft_applied_index: revision,
            errors,
            db_size_in_use: held,
            is_learner: false,
            storage_version: STORAGE_VERSION.into(),
            db_size_quota: read::signed(self.config().quota_bytes),
            downgrade_info: Some(DowngradeInfo::default()),
        }))
    }

    /// There is nothing to do: files are rewritten when they outweigh what must be kept.
    async fn defragment(
        &self,
        _request: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        Ok(Response::new(DefragmentResponse { header: self.header_now() }))
    }

    async fn hash(&self, _request: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        let HashKvResponse { header, hash, .. } = self.hash_at(0).await?;
        Ok(Response::new(HashResponse { header, hash }))
    }

    async fn hash_kv(&self, request: Request<HashKvRequest>) -> Result<Response<HashKvResponse>, Status> {
        self.hash_at(request.into_inner().revision).await.map(Response::new)
    }

    type SnapshotStream = BoxStream<'static, Result<SnapshotResponse, Status>>;

    async fn snapshot(
        &self,
        _request: Request<SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        self.engine().open()?;
        let (etcd, (pieces, queue)) = (self.clone(), tokio::sync::mpsc::channel(4));
        let send = move |pieces: &tokio::sync::mpsc::Sender<_>| -> Result<(), Status> {
            let mut export = Export::begin(etcd.engine().shared());
            let header = etcd.header(export.revision());
            while let Some(piece) = export.piece()? {
                // The piece that is sent counts no more.
                let remaining_bytes = export.remaining();
                let piece = bytes::Bytes::from(piece);
                for at in (0..piece.len()).step_by(BLOB) {
                    let blob = piece.slice(at..piece.len().min(at + BLOB));
                    let version = STORAGE_VERSION.to_owned();
                    let answer = SnapshotResponse { header, remaining_bytes, blob, version };
                    if pieces.blocking_send(Ok(answer)).is_err() {
                        // The client went away.
                        return Ok(());
                    }
                }
            }
            Ok(())
        };
        self.0.reading.spawn_blocking(move || {
            if let Err(status) = send(&pieces) {
                // Ignored: the client went away.
                pieces.blocking_send(Err(status)).ok();
            }
        });
        Ok(Response::new(ReceiverStream::new(queue).boxed()))
    }
}

#[tonic::async_trait]
impl Cluster for Etcd {
    async fn member_list(
        &self,
        _request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let config = self.config();
        let member = Member {
            id: self.0.member_id,
            name: config.name.clone(),
            peer_urls: config.peer_urls.clone(),
            client_urls: config.client_urls.clone(),
            is_learner: false,
        };
        // As upstream's, of no revision: it is about the members.
        Ok(Response::new(MemberListResponse { header: self.filled(None), members: vec![member] }))
    }
}

#[tonic::async_trait]
impl Auth for Etcd {
    async fn auth_status(
        &self,
        _request: Request<AuthStatusRequest>,
    ) -> Result<Response<AuthStatusResponse>, Status> {
        let header = self.header_now();
        Ok(Response::new(AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
    }

    async fn authenticate(
        &self,
        _request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }
}
