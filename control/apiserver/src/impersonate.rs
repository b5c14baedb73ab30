//! Asking in another's name: the `Impersonate-*` headers, and the right to use each of them.
//!
//! Every name is checked as the verb `impersonate` on a resource that stands for it: users, groups and service
//! accounts of the core group, uids and user extras of authentication.k8s.io.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;

use crate::authz::{self, Attributes};
use crate::context::Context;
use crate::identity::{ANONYMOUS, Identity, UNAUTHENTICATED, account_of};
use crate::query::unescape;
use crate::request::ResourceInfo;
use crate::status::{ApiError, Result};

const EXTRA: &str = "impersonate-extra-";

/// The identity that the request is made with: the caller's own, or the one it asks for and may use.
///
/// The headers are taken off the request: nobody behind may act on them a second time.
pub(crate) fn resolve(
    context: &Context,
    caller: Arc<Identity>,
    headers: &mut HeaderMap,
) -> Result<Arc<Identity>> {
    let Some((wanted, needed)) = wish(headers)? else { return Ok(caller) };
    for resource in &needed {
        authz::check(context, &caller, &Attributes::resource("impersonate", resource))?;
    }
    let used: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in used {
        headers.remove(name);
    }
    tracing::debug!(user = %caller.user, as_user = %wanted.user, "impersonating");
    Ok(Arc::new(wanted))
}

/// Who is asked for, and what the caller must be allowed to impersonate for it.
fn wish(headers: &HeaderMap) -> Result<Option<(Identity, Vec<ResourceInfo>)>> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let user = one("impersonate-user");
    let uid = one("impersonate-uid");
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
    let mut needed = Vec::new();
    if user.is_empty() {
        let others = headers.keys().any(|name| name.as_str().starts_with("impersonate-"));
        return if others {
            Err(ApiError::bad_request(without_user(&uid, &groups, headers)))
        } else {
            Ok(None)
        };
    }
    needed.push(match account_of(&user) {
        Some((namespace, name)) => {
            ResourceInfo { namespace: namespace.into(), ..named("", "serviceaccounts", name) }
        }
        None => named("", "users", &user),
    });
    needed.extend(groups.iter().map(|group| named("", "groups", group)));
    let mut wanted = Identity { user, groups, uid, extra: extra_of(headers) };
    for (key, values) in &wanted.extra {
        let of = |value: &String| ResourceInfo {
            subresource: key.clone(),
            ..named("authentication.k8s.io", "userextras", value)
        };
        needed.extend(values.iter().map(of));
    }
    if !wanted.uid.is_empty() {
        needed.push(named("authentication.k8s.io", "uids", &wanted.uid));
    }
    if let (true, Some((namespace, _))) = (wanted.groups.is_empty(), account_of(&wanted.user)) {
        wanted.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    if wanted.user != ANONYMOUS {
        let stranger = wanted.is_in(UNAUTHENTICATED);
        return Ok(Some((if stranger { wanted } else { wanted.authenticated() }, needed)));
    }
    if !wanted.is_in(UNAUTHENTICATED) {
        wanted.groups.push(UNAUTHENTICATED.into());
    }
    Ok(Some((wanted, needed)))
}

/// Upstream's complaint, which shows what was asked for as Go prints it.
fn without_user(uid: &str, groups: &[String], headers: &HeaderMap) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
        if items.is_empty() { "[]string(nil)".into() } else { format!("[]string{{{}}}", items.join(", ")) }
    };
    let extra = extra_of(headers).into_iter().map(|(key, values)| format!("{key:?}:{}", list(&values)));
    let extra: Vec<String> = extra.collect();
    let extra = if extra.is_empty() { "(nil)".into() } else { format!("{{{}}}", extra.join(", ")) };
    format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{}, Extra:map[string][]string{extra}}} without impersonating a user name",
        list(groups)
    )
}

/// The values of the extra headers by their key.
fn extra_of(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            out.entry(unescape(key, false)).or_default().push(value);
        }
    }
    out
}

fn named(group: &str, resource: &str, name: &str) -> ResourceInfo {
    ResourceInfo {
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        name: name.into(),
        ..ResourceInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn each_header_becomes_a_part_of_the_identity_and_a_right_to_have() {
        let (wanted, needed) = wish(&headers(&[
            ("impersonate-user", "ann"),
            ("impersonate-group", "devs"),
            ("impersonate-group", "ops"),
            ("impersonate-extra-example.org%2fscope", "all"),
            ("impersonate-uid", "u1"),
        ]))
        .unwrap()
        .unwrap();
        assert_eq!(wanted.groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!(wanted.extra["example.org/scope"], ["all"]);
        let shown: Vec<String> =
            needed.iter().map(|r| format!("{}/{}/{}", r.resource, r.subresource, r.name)).collect();
        assert_eq!(
            shown,
            ["users//ann", "groups//devs", "groups//ops", "userextras/example.org/scope/all", "uids//u1"]
        );
    }

    #[test]
    fn a_service_account_brings_its_groups() {
        let (wanted, needed) =
            wish(&headers(&[("impersonate-user", "system:serviceaccount:ns:robot")])).unwrap().unwrap();
        assert_eq!(
            wanted.groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
        assert_eq!((needed[0].namespace.as_str(), needed[0].name.as_str()), ("ns", "robot"));
    }

    #[test]
    fn groups_without_a_user_are_an_error_and_no_header_is_nothing() {
        let error = wish(&headers(&[("impersonate-group", "g")])).unwrap_err();
        assert_eq!(
            error.message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} \
             without impersonating a user name"
        );
        assert!(wish(&HeaderMap::new()).unwrap().is_none());
    }
}
