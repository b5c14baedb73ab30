//! An etcd in a folder, for tries and measurements without the whole program: `etcd FOLDER ADDRESS`.

use podwire_store::{Door, EtcdConfig};
use tokio_util::sync::CancellationToken;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(address)) = (words.next(), words.next()) else {
        return Err("usage: etcd FOLDER ADDRESS".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        let door = Door { listener, tls: None, metrics_only: false };
        let url = format!("http://{address}");
        let config = EtcdConfig { client_urls: vec![url], ..EtcdConfig::new(folder) };
        config.open()?.run(vec![door], CancellationToken::new()).await;
        Ok(())
    })
}
