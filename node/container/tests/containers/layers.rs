//! Roots of several layers, by every way a kernel may be told of them: the older ones are forced here, and are all there
//! is on kernels before 6.7 and, for mapped layers, before 6.13.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use podwire_container::{CreateRequest, Rootfs};
use podwire_linux::mount::Handing;

use crate::userns::{HOST, with_userns};
use crate::world::World;

/// A container whose layers lie below `folder`, each with a file of its own, over the usual rootfs.
fn layered(world: &World, id: &str, folder: &Path, count: usize, newest: Handing) -> CreateRequest {
    let mut lower: Vec<PathBuf> = (0..count).map(|number| folder.join(format!("l{number}"))).collect();
    for (number, layer) in lower.iter().enumerate() {
        fs::create_dir_all(layer).unwrap();
        fs::write(layer.join("which"), format!("layer {number}\n")).unwrap();
        fs::write(layer.join(format!("own-{number}")), "").unwrap();
    }
    lower.push(world.rootfs());
    let (upper, work) = (folder.join("upper"), folder.join("work"));
    fs::create_dir_all(&upper).unwrap();
    fs::create_dir_all(&work).unwrap();
    let mut request =
        world.request(id, &["sh", "-c", "cat /which; ls -d /own-* | wc -l; echo x > /made && echo wrote"]);
    request.rootfs = Rootfs::Overlay { lower, upper, work, readonly: false, newest };
    request
}

fn check(mapped: bool) {
    let world = World::new();
    let mut number = 0;
    // The last are too long together for one page of options, one of them also as one value.
    for (name, count) in [("plain", 2), ("odd: a,b\\c", 2), (&"x".repeat(100), 60), (&"y".repeat(250), 1)] {
        for newest in [Handing::Descriptors, Handing::Paths, Handing::Options] {
            number += 1;
            let folder = world.dir.path().join(number.to_string()).join(name);
            let mut request = layered(&world, &format!("c{number}"), &folder, count, newest);
            if mapped {
                with_userns(&mut request, None, Vec::new());
            }
            let (code, text) = world.output(request);
            let what = format!("{name:.12} {count} {newest:?}");
            assert_eq!((code, text.as_str()), (0, format!("layer 0\n{count}\nwrote\n").as_str()), "{what}");
            let owner = if mapped { HOST } else { 0 };
            assert_eq!(fs::metadata(folder.join("upper/made")).unwrap().uid(), owner, "{what}");
            assert_eq!(world.leftovers(), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn a_root_is_the_same_by_every_way_of_telling_its_layers() {
    check(false);
}

#[test]
fn a_root_with_mapped_ids_is_the_same_by_every_way_of_telling_its_layers() {
    check(true);
}
