//! The objects of one resource: read, watched, written.
//!
//! What a write returns is the object's metadata: nobody here wants more of it, and to read a pod takes longer than to write it.

use std::marker::PhantomData;

use futures::stream::{self, BoxStream, StreamExt};
use http::header::ACCEPT;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::{Client, Error, Result};
use crate::events::{Events, Line};
use crate::objects::{Meta, Object};

pub use kube_core::params::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
    WatchParams,
};
pub use kube_core::subresource::AttachParams;
pub use kube_core::{
    ApiResource, DynamicResourceScope, GroupVersionKind, NamespaceResourceScope, Resource, ResourceExt,
    Status, WatchEvent,
};

/// A list as it came, its objects not read yet.
#[derive(Deserialize)]
pub(crate) struct RawList {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    /// Absent or null when there are none.
    pub(crate) items: Option<Vec<Box<RawValue>>>,
}

/// Objects, and as of when.
#[derive(Clone, Debug)]
pub struct List<K> {
    /// Resource version, and where the next page begins.
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<K>,
}

/// Where the objects of a resource are; the part of an [`Api`] that does not depend on what they are read into.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) client: Client,
    requests: kube_core::Request,
    only_metadata: bool,
}

impl Place {
    async fn get(&self, name: &str) -> Result<Option<String>> {
        let params = GetParams::default();
        let request = match self.only_metadata {
            true => self.requests.get_metadata(name, &params)?,
            false => self.requests.get(name, &params)?,
        };
        match self.client.request_text(request).await {
            Ok(text) => Ok(Some(text)),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn list(&self, params: &ListParams) -> Result<RawList> {
        let request = match self.only_metadata {
            true => self.requests.list_metadata(params)?,
            false => self.requests.list(params)?,
        };
        let text = self.client.request_text(request).await?;
        serde_json::from_str(&text).map_err(Error::Decode)
    }

    pub(crate) async fn watch(&self, params: &WatchParams, version: &str) -> Result<Events> {
        let request = match self.only_metadata {
            true => self.requests.watch_metadata(params, version)?,
            false => self.requests.watch(params, version)?,
        };
        Ok(Events::new(self.client.request_lines(request).await?))
    }

    async fn write(&self, request: http::Request<Vec<u8>>) -> Result<Meta> {
        Meta::read(&self.client.request_text(request).await?).map_err(Error::Decode)
    }
}

/// The objects of one resource, in one namespace or in all.
pub struct Api<K> {
    place: Place,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Api { place: self.place.clone(), kind: PhantomData }
    }
}

impl<K: Resource> Api<K> {
    /// Objects of all namespaces, or of none.
    pub fn all(client: Client) -> Api<K>
    where
        K::DynamicType: Default,
    {
        Api::all_with(client, &K::DynamicType::default())
    }

    /// Objects of one namespace.
    pub fn namespaced(client: Client, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::at(client, K::url_path(&K::DynamicType::default(), Some(namespace)))
    }

    /// Objects of a resource that is found at run time, of all namespaces or of none.
    pub fn all_with(client: Client, resource: &K::DynamicType) -> Api<K> {
        Api::at(client, K::url_path(resource, None))
    }

    /// Objects of a resource that is found at run time, of one namespace.
    pub fn namespaced_with(client: Client, namespace: &str, resource: &K::DynamicType) -> Api<K>
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Api::at(client, K::url_path(resource, Some(namespace)))
    }

    fn at(client: Client, path: String) -> Api<K> {
        let requests = kube_core::Request::new(path);
        let place = Place { client, requests, only_metadata: K::metadata_api() };
        Api { place, kind: PhantomData }
    }

    pub(crate) fn into_place(self) -> Place {
        self.place
    }

    /// Makes an object.
    pub async fn create(&self, params: &PostParams, object: &impl Serialize) -> Result<Meta> {
        let body = serde_json::to_vec(object).map_err(Error::Decode)?;
        self.place.write(self.place.requests.create(params, body)?).await
    }

    /// Asks for a part of an object that is made by asking, such as the binding of a pod.
    pub async fn create_subresource(
        &self,
        part: &str,
        name: &str,
        params: &PostParams,
        object: &Value,
    ) -> Result<Meta> {
        let body = object.to_string().into_bytes();
        self.place.write(self.place.requests.create_subresource(part, name, params, body)?).await
    }

    /// Changes an object.
    pub async fn patch(&self, name: &str, params: &PatchParams, patch: &Patch<Value>) -> Result<Meta> {
        let request = match self.place.only_metadata {
            true => self.place.requests.patch_metadata(name, params, patch)?,
            false => self.place.requests.patch(name, params, patch)?,
        };
        self.place.write(request).await
    }

    /// Changes an object's status.
    pub async fn patch_status(&self, name: &str, params: &PatchParams, patch: &Patch<Value>) -> Result<Meta> {
        self.place.write(self.place.requests.patch_subresource("status", name, params, patch)?).await
    }

    /// Deletes an object, or begins to.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<()> {
        self.place.client.request_text(self.place.requests.delete(name, params)?).await.map(drop)
    }

    /// Deletes all objects that the parameters choose, or begins to.
    pub async fn delete_collection(&self, params: &DeleteParams, chosen: &ListParams) -> Result<()> {
        self.place.client.request_text(self.place.requests.delete_collection(params, chosen)?).await.map(drop)
    }

    /// Reads an object with all that is in it, known here or not; `None` if there is none.
    pub async fn get_value(&self, name: &str) -> Result<Option<Value>> {
        let mut request = self.place.requests.get(name, &GetParams::default())?;
        request.headers_mut().insert(ACCEPT, http::HeaderValue::from_static("application/json"));
        match self.place.client.request(request).await {
            Ok(value) => Ok(Some(value)),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes an object that was read with all that is in it, if nobody wrote it meanwhile.
    pub async fn replace(&self, name: &str, params: &PostParams, object: &Value) -> Result<Meta> {
        let body = object.to_string().into_bytes();
        self.place.write(self.place.requests.replace(name, params, body)?).await
    }

    /// Writes a part of an object that was read with all that is in it.
    pub async fn replace_subresource(
        &self,
        part: &str,
        name: &str,
        params: &PostParams,
        object: &Value,
    ) -> Result<Meta> {
        let body = object.to_string().into_bytes();
        self.place.write(self.place.requests.replace_subresource(part, name, params, body)?).await
    }
}

impl<K: Object> Api<K> {
    /// Reads an object; `None` if there is none.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        let text = self.place.get(name).await?;
        text.map(|text| K::read(&text).map_err(Error::Decode)).transpose()
    }

    /// Reads all objects that the parameters choose.
    pub async fn list(&self, params: &ListParams) -> Result<List<K>> {
        let RawList { metadata, items } = self.place.list(params).await?;
        let items = items.iter().flatten().map(|item| K::read(item.get())).collect::<Result<_, _>>();
        Ok(List { metadata, items: items.map_err(Error::Decode)? })
    }

    /// What happens to the objects from a resource version on, until the server ends it.
    pub async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<K>>>> {
        let events = self.place.watch(params, version).await?;
        let read = |mut events: Events| async move {
            let line = events.next().await?;
            Some((line.and_then(event), events))
        };
        // A mark says nothing about objects.
        let told = |event: Result<Option<WatchEvent<K>>>| std::future::ready(event.transpose());
        Ok(stream::unfold(events, read).filter_map(told).boxed())
    }
}

fn event<K: Object>(line: Line) -> Result<Option<WatchEvent<K>>> {
    let read = |object: Box<RawValue>| K::read(object.get()).map_err(Error::Decode);
    Ok(Some(match line {
        Line::Added(object) => WatchEvent::Added(read(object)?),
        Line::Modified(object) => WatchEvent::Modified(read(object)?),
        Line::Deleted(object) => WatchEvent::Deleted(read(object)?),
        Line::Error(status) => WatchEvent::Error(status),
        Line::Bookmark(_) => return Ok(None),
    }))
}
