//! The images of the store in memory: names to images. Pure; the store loads and saves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::record::{Image, ImageRecord};
use crate::reference::Reference;

/// Fewer digits are more likely a name than an id.
const SHORTEST_ID: usize = 6;

/// One image with the record it came from.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) image: Arc<Image>,
    pub(crate) record: Arc<ImageRecord>,
}

/// All images, findable by id and by name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_id: BTreeMap<String, Entry>,
    by_name: HashMap<String, String>,
}

impl Index {
    /// Builds the index; of two images that claim one tag, the later written has it.
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|entry| entry.record.stamp);
        let mut by_name = HashMap::new();
        for entry in &entries {
            for name in entry.image.repo_tags.iter().chain(&entry.image.repo_digests) {
                by_name.insert(name.clone(), entry.image.id.clone());
            }
        }
        let by_id = entries
            .into_iter()
            .map(|mut entry| {
                let id = entry.image.id.clone();
                let owned = |name: &String| by_name.get(name) == Some(&id);
                if !entry.image.repo_tags.iter().all(owned) {
                    let mut image = (*entry.image).clone();
                    image.repo_tags.retain(owned);
                    entry.image = Arc::new(image);
                }
                (id, entry)
            })
            .collect();
        Self { by_id, by_name }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.by_id.values()
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Entry> {
        self.by_id.get(id)
    }

    /// The image of a name, an id, or the unambiguous start of an id.
    pub(crate) fn find(&self, text: &str) -> Option<&Entry> {
        if let Some(entry) = self.by_id.get(text) {
            return Some(entry);
        }
        if let Some(entry) =
            text.parse::<Reference>().ok().and_then(|reference| self.find_reference(&reference))
        {
            return Some(entry);
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        if digits.len() < SHORTEST_ID || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let start = format!("sha256:{digits}");
        let mut matches = self.by_id.range(start.clone()..).take_while(|(id, _)| id.starts_with(&start));
        match (matches.next(), matches.next()) {
            (Some((_, entry)), None) => Some(entry),
            _ => None,
        }
    }

    fn find_reference(&self, reference: &Reference) -> Option<&Entry> {
        self.by_id.get(self.by_name.get(&reference.exact_name())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn entry(seed: &str, tags: &[&str], stamp: u64) -> Entry {
        let config = Digest::of(seed.as_bytes());
        let tags: Vec<String> = tags.iter().map(ToString::to_string).collect();
        let image = Image {
            id: config.to_string(),
            repo_tags: tags.clone(),
            repo_digests: vec![format!("docker.io/library/{seed}@{config}")],
            size: 0,
            config: oci_spec::image::ImageConfiguration::default(),
            layers: vec![],
            pinned: false,
        };
        let record = ImageRecord {
            config,
            manifest: None,
            layers: vec![],
            tags,
            digests: vec![],
            size: 0,
            pinned: false,
            pending: None,
            stamp,
        };
        Entry { image: Arc::new(image), record: Arc::new(record) }
    }

    #[test]
    fn images_are_found_by_name_digest_id_and_short_id() {
        let index = Index::new(vec![entry("a", &["docker.io/library/a:latest"], 1), entry("b", &[], 2)]);
        let id = Digest::of(b"a").to_string();
        for text in [
            "a",
            "a:latest",
            "docker.io/library/a:latest",
            &id,
            &id[7..],
            &id[7..19],
            &format!("a@{id}"),
            &format!("a:v9@{id}"),
        ] {
            assert_eq!(index.find(text).expect(text).image.id, id, "{text}");
        }
        assert!(index.find("c").is_none());
        assert!(index.find("a:v2").is_none());
        assert!(index.find("").is_none());
        assert!(index.find("sha256:").is_none());
    }

    #[test]
    fn a_tag_claimed_twice_belongs_to_the_later_image() {
        let tag = "docker.io/library/x:latest";
        let index = Index::new(vec![entry("new", &[tag], 9), entry("old", &[tag], 3)]);
        assert_eq!(index.find("x").unwrap().image.id, Digest::of(b"new").to_string());
        let old = index.by_id(&Digest::of(b"old").to_string()).unwrap();
        assert!(old.image.repo_tags.is_empty());
    }
}
