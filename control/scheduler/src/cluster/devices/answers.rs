//! Which nodes have the devices for which claims, as long as nothing changes that it depends on. Pure.
//!
//! Claims that ask for the same get the same answer, whoever they belong to: most pods are copies of one template.

use std::collections::HashMap;

/// How many sorts of claims are told apart before all is forgotten.
const MOST_SHAPES: usize = 4096;
/// How many answers are kept for a node.
const MOST_PER_NODE: usize = 16;

/// What claims ask for, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape(u64);

/// What a node's answer is: `None` if it has not the devices, else what the alternatives that it has are worth.
pub(crate) type Answer = Option<i64>;

/// The answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    shapes: HashMap<String, Shape>,
    /// Numbers are given once.
    next: u64,
    by_node: HashMap<String, Vec<(Shape, Answer)>>,
}

impl Answers {
    /// The number of a text that says what claims ask for.
    pub(crate) fn shape(&mut self, text: &str) -> Shape {
        if let Some(known) = self.shapes.get(text) {
            return *known;
        }
        if self.shapes.len() >= MOST_SHAPES {
            self.shapes.clear();
            self.by_node.clear();
        }
        self.next += 1;
        self.shapes.insert(text.to_owned(), Shape(self.next));
        Shape(self.next)
    }

    /// What is known.
    pub(crate) fn get(&self, node: &str, shape: Shape) -> Option<Answer> {
        let known = self.by_node.get(node)?.iter().find(|(other, _)| *other == shape)?;
        Some(known.1)
    }

    /// Notes an answer.
    pub(crate) fn put(&mut self, node: &str, shape: Shape, answer: Answer) {
        let known = match self.by_node.get_mut(node) {
            Some(known) => known,
            None => self.by_node.entry(node.to_owned()).or_default(),
        };
        if known.len() >= MOST_PER_NODE {
            known.remove(0);
        }
        known.push((shape, answer));
    }

    /// Something about a node changed, or it is gone.
    pub(crate) fn forget(&mut self, node: &str) {
        self.by_node.remove(node);
    }

    /// Something changed for all nodes.
    pub(crate) fn forget_all(&mut self) {
        self.by_node.clear();
    }
}
