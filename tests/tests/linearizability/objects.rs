//! ConfigMaps of an API server as registers: writes that name the version of the object that was seen.

use std::collections::BTreeMap;

use http::{Method, Request};
use podwire_client::{Client, Error};
use serde_json::{Value, json};

use super::history::{Registers, Seen, Unknown};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// A client of one API server.
#[derive(Clone)]
pub(crate) struct Objects(pub(crate) Client);

impl Objects {
    /// The answer; nothing when the server says that it did not do it.
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Option<Value>, Unknown> {
        let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(bytes).map_err(|_| Unknown)?;
        match self.0.request(request).await {
            Ok(told) => Ok(Some(told)),
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(_) => Err(Unknown),
        }
    }
}

fn seen(object: &Value) -> Option<(String, i64)> {
    let version = object["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
    Some((object["data"]["value"].as_str()?.to_owned(), version))
}

impl Registers for Objects {
    async fn read(&self, key: &str) -> Result<Seen, Unknown> {
        let told = self.ask(Method::GET, &format!("{PATH}/{key}"), None).await?;
        Ok(told.as_ref().and_then(seen))
    }

    async fn swap(&self, key: &str, before: &Seen, put: Option<&str>) -> Result<Option<i64>, Unknown> {
        let place = format!("{PATH}/{key}");
        let version = before.as_ref().map(|seen| seen.1.to_string());
        let object = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value},
                "metadata": {"name": key, "resourceVersion": version},
            })
        };
        let told = match (before, put) {
            (None, Some(value)) => self.ask(Method::POST, PATH, Some(object(value))).await?,
            (Some(_), Some(value)) => self.ask(Method::PUT, &place, Some(object(value))).await?,
            (_, None) => {
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version},
                });
                let told = self.ask(Method::DELETE, &place, Some(options)).await?;
                return Ok(told.map(|_| 0));
            }
        };
        Ok(told.map(|told| seen(&told).map_or(0, |seen| seen.1)))
    }

    async fn list(&self) -> Result<(BTreeMap<String, String>, i64), Unknown> {
        let told = self.ask(Method::GET, PATH, None).await?.ok_or(Unknown)?;
        let revision = told["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let objects = told["items"].as_array().into_iter().flatten();
        let all = objects.filter_map(|object| {
            let name = object["metadata"]["name"].as_str()?.to_owned();
            Some((name, seen(object)?.0))
        });
        // Others' objects have no value.
        Ok((all.collect(), revision.ok_or(Unknown)?))
    }
}
