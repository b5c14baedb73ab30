//! Any passwd and group files of an image: nobody becomes a user or gets a group that neither they nor the wish name.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_runtime::hostile;
use podwire_wire::cri;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    strict: bool,
    user: Option<i64>,
    group: Option<i64>,
    name: &'a str,
    more: Vec<i64>,
    image_user: &'a str,
    passwd: &'a str,
    groups: &'a str,
}

/// Whether a field of a line, or the wish itself, is the number.
fn names(text: &str, id: u32) -> bool {
    text.split(['\n', ':', '\r']).any(|word| word.parse() == Ok(id))
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&["root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:www:/srv:/bin/false\nweb\nextra:x:50000:web,other\n"]);
}, |input: Input<'_>| {
    let number = |value: Option<i64>| value.map(|value| cri::Int64Value { value });
    let wish = cri::LinuxContainerSecurityContext {
        run_as_user: number(input.user),
        run_as_group: number(input.group),
        run_as_username: input.name.to_owned(),
        supplemental_groups: input.more.clone(),
        supplemental_groups_policy: i32::from(input.strict),
        ..Default::default()
    };
    let found = hostile::identity(&wish, input.image_user, input.passwd, input.groups);
    let Some((uid, gid, groups)) = found else { return };
    let asked = [input.user, input.group].into_iter().flatten().chain(input.more.iter().copied());
    let asked: Vec<u32> = asked.filter_map(|id| u32::try_from(id).ok()).collect();
    let given = [input.name, input.image_user, input.passwd, input.groups];
    for id in groups.iter().chain([&uid, &gid]) {
        let is_named = *id == 0 || asked.contains(id) || given.iter().any(|text| names(text, *id));
        assert!(is_named, "{id} is in none of {given:?}");
    }
    assert_eq!(groups.first(), Some(&gid), "the primary group comes first");
    let lines = input.groups.lines().count();
    assert!(groups.len() <= 1 + lines + input.more.len(), "{} groups", groups.len());
    assert!(groups.iter().enumerate().all(|(at, group)| !groups[..at].contains(group)), "no group is there twice");
    if input.strict {
        assert!(groups[1..].iter().all(|group| asked.contains(group)), "the strict policy takes none of the image's");
    }
    if let (Some(uid_asked), "") = (input.user, input.name) {
        assert_eq!(i64::from(uid), uid_asked, "who is asked for by number has that number");
    }
});
