//! Any text as `mountinfo`: what the kernel writes is read back, and nothing else is taken for a mount.

#![no_main]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_linux::cgroup::Hierarchies;
use podwire_linux::mount::parse_mountinfo;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Text(&'a str),
    Mounts(Vec<(u64, &'a str, &'a str, &'a str)>),
}

/// As the kernel escapes names.
fn escaped(name: &str) -> String {
    let octal = |letter: char| match letter {
        ' ' => "\\040".to_owned(),
        '\t' => "\\011".to_owned(),
        '\n' => "\\012".to_owned(),
        '\\' => "\\134".to_owned(),
        other => other.to_string(),
    };
    name.chars().map(octal).collect()
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        r"36 35 98:0 /a\040b /mnt/x\134y rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue\n",
        "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,name=systemd\n",
    ].map(|text| [&podwire_fuzz::variant(0, 2)[..], text.as_bytes()].concat()));
}, |input: Input<'_>| {
    match input {
        Input::Text(text) => {
            let mounts = parse_mountinfo(text);
            assert!(mounts.len() <= text.lines().count());
            let size = |path: &Path| path.as_os_str().len();
            let kept: usize = mounts.iter().map(|mount| size(&mount.root) + size(&mount.target) + mount.source.len()).sum();
            assert!(kept <= text.len(), "more was read than was written");
            if let Ok(found) = Hierarchies::parse(text) {
                assert!(!found.all().is_empty() && found.all().len() <= mounts.len());
                assert!(found.all().iter().all(|one| mounts.iter().any(|mount| mount.target == one.mount)));
            }
        }
        Input::Mounts(wanted) => {
            let line = |(id, root, target, source): &(u64, &str, &str, &str)| {
                let [root, target, source] = [root, target, source].map(|name| escaped(name));
                format!("{id} 1 0:1 /{root} /{target} rw shared:1 - tmpfs {source} rw\n")
            };
            let mounts = parse_mountinfo(&wanted.iter().map(line).collect::<String>());
            assert_eq!(mounts.len(), wanted.len(), "every mount is read");
            for (mount, (id, root, target, _)) in mounts.iter().zip(&wanted) {
                assert_eq!((mount.id, mount.parent, mount.fstype.as_str()), (*id, 1, "tmpfs"));
                assert_eq!(mount.root.as_os_str().as_bytes(), format!("/{root}").as_bytes());
                assert_eq!(mount.target.as_os_str().as_bytes(), format!("/{target}").as_bytes());
            }
        }
    }
});
