//! Who a container runs as: as CRI asks or the image says, looked up in the image's own passwd and group files.

use podwire_wire::cri;

use super::Identity;

/// Why a user cannot be told.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum UserError {
    #[error("unable to find user {name}: no matching entries in passwd file")]
    NoUser { name: String },
    #[error("unable to find group {name}: no matching entries in group file")]
    NoGroup { name: String },
    #[error("run_as_group is set without a user")]
    GroupAlone,
    #[error("user or group id {id} is out of range")]
    Range { id: String },
}

struct PasswdLine<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

fn passwd(text: &str) -> impl Iterator<Item = PasswdLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = known(fields.nth(1)?)?;
        let gid = known(fields.next()?)?;
        Some(PasswdLine { name, uid, gid })
    })
}

/// Name, id and members of each group.
fn group(text: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = known(fields.nth(1)?)?;
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

/// The id that a number is. The largest one is none: to the kernel it means "stay who you are", which is root.
fn id(value: i64) -> Result<u32, UserError> {
    let id = u32::try_from(value).ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| UserError::Range { id: value.to_string() })
}

/// The id in a line of the image's files; a line without one is as good as absent.
fn known(text: &str) -> Option<u32> {
    numeric(text).ok().flatten()
}

/// The id that a text is, if it is a number: a number that can be no id is an error, and never somebody's name.
fn numeric(text: &str) -> Result<Option<u32>, UserError> {
    match text.parse::<i64>() {
        Ok(value) => id(value).map(Some),
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(UserError::Range { id: text.to_owned() })
        }
        Err(_) => Ok(None),
    }
}

/// The identity from the security context, else the image's `User`, with the groups the policy allows.
pub(crate) fn resolve(
    security: &cri::LinuxContainerSecurityContext,
    image_user: &str,
    passwd_file: &str,
    group_file: &str,
) -> Result<Identity, UserError> {
    let requested = requested_user(security, image_user)?;
    let (user, requested_group) =
        requested.split_once(':').map_or((requested.as_str(), None), |(user, group)| (user, Some(group)));
    let mut identity = Identity::default();
    let mut name = None;
    if let Some(uid) = numeric(user)? {
        identity.uid = uid;
        if let Some(line) = passwd(passwd_file).find(|line| line.uid == uid) {
            identity.gid = line.gid;
            name = Some(line.name.to_owned());
        }
    } else if !user.is_empty() {
        let line = passwd(passwd_file)
            .find(|line| line.name == user)
            .ok_or_else(|| UserError::NoUser { name: user.to_owned() })?;
        (identity.uid, identity.gid) = (line.uid, line.gid);
        name = Some(user.to_owned());
    } else {
        name = passwd(passwd_file).find(|line| line.uid == 0).map(|line| line.name.to_owned());
    }
    if let Some(requested) = requested_group.filter(|requested| !requested.is_empty()) {
        identity.gid = match numeric(requested)? {
            Some(gid) => gid,
            None => group(group_file)
                .find(|(known, _, _)| *known == requested)
                .map(|(_, gid, _)| gid)
                .ok_or_else(|| UserError::NoGroup { name: requested.to_owned() })?,
        };
    }
    identity.groups = groups(security, &identity, name.as_deref(), group_file)?;
    Ok(identity)
}

fn requested_user(
    security: &cri::LinuxContainerSecurityContext,
    image_user: &str,
) -> Result<String, UserError> {
    let user = match (&security.run_as_username, &security.run_as_user) {
        (name, _) if !name.is_empty() => name.clone(),
        (_, Some(uid)) => id(uid.value)?.to_string(),
        _ if security.run_as_group.is_some() => return Err(UserError::GroupAlone),
        _ => return Ok(image_user.to_owned()),
    };
    match &security.run_as_group {
        Some(gid) => Ok(format!("{user}:{}", id(gid.value)?)),
        None => Ok(user),
    }
}

/// The primary group first, then the image's memberships (policy Merge only), then those asked for.
fn groups(
    security: &cri::LinuxContainerSecurityContext,
    identity: &Identity,
    name: Option<&str>,
    group_file: &str,
) -> Result<Vec<u32>, UserError> {
    let mut list = vec![identity.gid];
    let strict = security.supplemental_groups_policy == cri::SupplementalGroupsPolicy::Strict as i32;
    if let Some(name) = name.filter(|_| !strict) {
        let member = |members: &str| members.split(',').any(|known| known.trim() == name);
        list.extend(group(group_file).filter(|(_, _, members)| member(members)).map(|(_, gid, _)| gid));
    }
    for gid in &security.supplemental_groups {
        list.push(id(*gid)?);
    }
    let mut seen = std::collections::HashSet::new();
    list.retain(|gid| seen.insert(*gid));
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:www:/srv:/bin/false\n";
    const GROUP: &str = "root:x:0:\nweb:x:34:\nextra:x:50000:web,other\nadm:x:4:root\n";

    fn who(security: &cri::LinuxContainerSecurityContext, image: &str) -> Result<Identity, UserError> {
        resolve(security, image, PASSWD, GROUP)
    }

    #[test]
    fn the_image_user_counts_without_a_wish() {
        let none = cri::LinuxContainerSecurityContext::default();
        assert_eq!(who(&none, "web").unwrap(), Identity { uid: 33, gid: 34, groups: vec![34, 50000] });
        assert_eq!(who(&none, "33:extra").unwrap(), Identity { uid: 33, gid: 50000, groups: vec![50000] });
        assert_eq!(who(&none, "").unwrap(), Identity { uid: 0, gid: 0, groups: vec![0, 4] });
        assert_eq!(who(&none, "12345").unwrap(), Identity { uid: 12345, gid: 0, groups: vec![0] });
        assert_eq!(who(&none, "nobody").unwrap_err(), UserError::NoUser { name: "nobody".into() });
    }

    #[test]
    fn a_number_is_never_a_name_and_no_number_means_root_but_zero() {
        let none = cri::LinuxContainerSecurityContext::default();
        let passwd = "33:x:0:0::/:/bin/sh\n4294967296:x:0:0::/:/bin/sh\nlast:x:4294967295:0::/:/bin/sh\n";
        let group = "33:x:0:\n4294967296:x:0:\nlast:x:4294967295:\n";
        let who = |user: &str| resolve(&none, user, passwd, group);
        assert_eq!(who("33:33").unwrap(), Identity { uid: 33, gid: 33, groups: vec![33] });
        assert_eq!(who("4294967294").unwrap().uid, u32::MAX - 1);
        for beyond in ["4294967295", "4294967296", "99999999999999999999", "-1"] {
            let range = UserError::Range { id: beyond.into() };
            assert_eq!(who(beyond).unwrap_err(), range);
            assert_eq!(who(&format!("33:{beyond}")).unwrap_err(), range);
        }
        assert_eq!(who("last").unwrap_err(), UserError::NoUser { name: "last".into() });
        assert_eq!(who("33:last").unwrap_err(), UserError::NoGroup { name: "last".into() });
        let requested = cri::LinuxContainerSecurityContext {
            run_as_user: Some(cri::Int64Value { value: u32::MAX.into() }),
            ..Default::default()
        };
        assert_eq!(
            resolve(&requested, "", "", "").unwrap_err(),
            UserError::Range { id: "4294967295".into() }
        );
    }

    #[test]
    fn strict_policy_ignores_the_images_memberships() {
        let mut requested = cri::LinuxContainerSecurityContext {
            run_as_user: Some(cri::Int64Value { value: 33 }),
            supplemental_groups: vec![60000],
            ..Default::default()
        };
        assert_eq!(who(&requested, "").unwrap().groups, vec![34, 50000, 60000]);
        requested.supplemental_groups_policy = cri::SupplementalGroupsPolicy::Strict as i32;
        assert_eq!(who(&requested, "").unwrap().groups, vec![34, 60000]);
    }

    #[test]
    fn a_group_needs_a_user() {
        let mut requested = cri::LinuxContainerSecurityContext {
            run_as_group: Some(cri::Int64Value { value: 7 }),
            ..Default::default()
        };
        assert_eq!(who(&requested, "web").unwrap_err(), UserError::GroupAlone);
        requested.run_as_username = "web".into();
        assert_eq!(who(&requested, "").unwrap(), Identity { uid: 33, gid: 7, groups: vec![7, 50000] });
    }
}
