//! portmap: ports of the node lead to ports of a pod.
//!
//! Rules are the reference plugin's nf_tables layout; each carries the container as comment, by which DEL finds it.

pub mod conf;
pub mod nft;

use serde_json::Value;

use self::conf::Conf;
use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => {
            let result = request.required_prev_result()?;
            let ips = conf.targets(&result, &request.ifname);
            if let Err(error) = nft::add(&conf, &ips) {
                return Err(match nft::del(&conf) {
                    Ok(()) => error,
                    Err(undo) => error.details(format!("clean-up failed: {undo}")),
                });
            }
            result.to_value(request.version()?).map(Some)
        }
        Command::Del => nft::del(&conf).map(|()| None),
        Command::Check => {
            let ips = conf.targets(&request.required_prev_result()?, &request.ifname);
            nft::check(&conf, &ips).map(|()| None)
        }
        Command::Gc => nft::gc(&conf, &request.valid_attachments()?).map(|()| None),
        Command::Status | Command::Version => Ok(None),
    }
}
