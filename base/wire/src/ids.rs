//! What pods, sandboxes and containers are called over CRI: texts that must not be taken for one another.
//!
//! They read like `&str` where a text is wanted, for messages and paths; making one takes a word.

use std::{borrow::Borrow, fmt, ops::Deref};

macro_rules! text {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name(String);

        impl $Name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text, to be sent.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl From<String> for $Name {
            fn from(text: String) -> Self {
                $Name(text)
            }
        }

        impl From<&str> for $Name {
            fn from(text: &str) -> Self {
                $Name(text.to_owned())
            }
        }

        impl Deref for $Name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $Name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Sound for maps: a text compares and hashes as what it is wrapped in.
        impl Borrow<str> for $Name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $Name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $Name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<String> for $Name {
            fn eq(&self, other: &String) -> bool {
                self.0 == *other
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text! {
    /// The unique id of a pod; a static pod's is the hash of its configuration.
    PodUid
}

text! {
    /// The runtime's id of a sandbox.
    SandboxId
}

text! {
    /// The runtime's id of a container.
    ContainerId
}

text! {
    /// The name of a container in its pod's specification.
    ContainerName
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_map_by_id_is_asked_with_a_text() {
        let map = BTreeMap::from([(ContainerId::from("a"), 1)]);
        assert_eq!((map.get("a"), map.get("b")), (Some(&1), None));
        assert_eq!(format!("{} {:.1}", SandboxId::from("s"), PodUid::from("uid")), "s u");
    }
}
