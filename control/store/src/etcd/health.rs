//! gRPC's health service, by which clients and their balancers ask whether a server serves. One that answers does.

use futures::StreamExt;
use futures::stream::BoxStream;
use podwire_wire::grpc_health::health_check_response::ServingStatus;
use podwire_wire::grpc_health::health_server::Health;
use podwire_wire::grpc_health::{HealthCheckRequest, HealthCheckResponse};
use tonic::{Request, Response, Status};

use super::Etcd;

/// Of the server as a whole, or of a service: upstream knows none by name.
fn status(asked: &HealthCheckRequest) -> Option<ServingStatus> {
    asked.service.is_empty().then_some(ServingStatus::Serving)
}

fn told(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Etcd {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.engine().open()?;
        let status = status(request.get_ref()).ok_or_else(|| Status::not_found("unknown service"))?;
        Ok(Response::new(told(status)))
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let now = status(request.get_ref()).unwrap_or(ServingStatus::ServiceUnknown);
        let stopping = self.0.stopping.clone();
        let until_it_stops = futures::stream::once(async move {
            stopping.cancelled().await;
            Ok(told(ServingStatus::NotServing))
        });
        Ok(Response::new(futures::stream::iter([Ok(told(now))]).chain(until_it_stops).boxed()))
    }
}
