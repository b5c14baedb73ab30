//! Where both runtimes stand in these tests: the same images, the same network, and a client that has pulled them.

use anyhow::Result;
use podwire_testkit::{
    critest,
    images::{Files, Image, Layer},
    node::bin_dir,
    runtimes::{Bed, Running},
};
use serde_json::json;

use super::client::{self, Client};

pub fn bed() -> Result<Bed> {
    let app = std::fs::read(bin_dir().join("pod-app"))?;
    let tools = Files::default().file("pod-app", app.clone(), 0o755);
    let pause = Files::default().file("pause", app, 0o755);
    Bed::new(vec![
        Image::new(&["app:latest"], &Layer::new(&tools)?, &json!({"Entrypoint": ["/pod-app"]}))?,
        Image::new(&["sandbox:latest"], &Layer::new(&pause)?, &json!({"Entrypoint": ["/pause"]}))?,
    ])
}

/// Carries out async work in threads that share the test's network namespace.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

pub async fn ready(runtime: &Running) -> Result<Client> {
    let client = Client::new(&runtime.socket);
    client.pull(client::IMAGE).await?;
    client.pull(critest::SANDBOX_IMAGE).await?;
    Ok(client)
}
