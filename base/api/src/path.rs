//! Where in an object we are: a path on the stack that becomes text only when there is something to say.

use std::fmt;

/// One step of a path.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
    Entry(&'a str),
}

/// A path to a field, linked to its parent on the stack.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

impl<'a> Path<'a> {
    /// A path of one field.
    pub const fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Name(name) }
    }

    /// A field of this object.
    pub const fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// An element of this list.
    pub const fn index(&'a self, at: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(at) }
    }

    /// An entry of this map, written in brackets.
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    /// An entry of this map, written like a field; it is none of the names.
    pub const fn entry(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Entry(key) }
    }

    /// The names alone, without indices, as Go's JSON errors print them.
    pub fn names(&self) -> String {
        let mut out = self.parent.map(Path::names).unwrap_or_default();
        if let Step::Name(name) = self.step
            && !name.is_empty()
        {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        }
        out
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        if let Some(parent) = self.parent {
            parent.fmt(out)?;
            first = parent.is_empty();
        }
        match self.step {
            Step::Name("") => Ok(()),
            Step::Name(name) if first => out.write_str(name),
            Step::Name(name) => write!(out, ".{name}"),
            Step::Entry(key) => write!(out, ".{key}"),
            Step::Index(at) => write!(out, "[{at}]"),
            Step::Key(key) => write!(out, "[{key}]"),
        }
    }
}

impl Path<'_> {
    fn is_empty(&self) -> bool {
        matches!(self.step, Step::Name("")) && self.parent.is_none_or(Path::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_kubernetes_writes_them() {
        let spec = Path::root("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        let env = first.child("env");
        assert_eq!(env.to_string(), "spec.containers[0].env");
        assert_eq!(env.names(), "spec.containers.env");
        assert_eq!(Path::root("data").key("a.b").to_string(), "data[a.b]");
        assert_eq!(Path::root("").child("spec").to_string(), "spec");
        let spec = Path::root("spec");
        let within = spec.entry("a.b");
        let entry = within.child("int");
        assert_eq!((entry.to_string().as_str(), entry.names().as_str()), ("spec.a.b.int", "spec.int"));
    }
}
