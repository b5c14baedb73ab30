//! The questions: written ones for the corners, generated ones for the rest.

mod images;
mod objects;
mod pods;
mod quantities;
mod selectors;
mod tolerations;

use serde_json::Value;

use crate::dice::Dice;

/// Questions of one kind: the written ones, a maker of more, how many there are in all, how many of them are recorded.
struct Kind {
    written: Vec<Value>,
    make: fn(&mut Dice) -> Value,
    all: usize,
    recorded: usize,
}

impl Kind {
    fn questions(&self, seed: u64, count: usize) -> impl Iterator<Item = Value> {
        let mut dice = Dice::new(seed);
        let made = std::iter::repeat_with(move || (self.make)(&mut dice));
        self.written.iter().cloned().chain(made).take(count)
    }
}

fn kinds() -> Vec<Kind> {
    vec![
        quantities::texts(),
        quantities::sums(),
        pods::pods(),
        selectors::texts(),
        selectors::objects(),
        selectors::nodes(),
        selectors::preferences(),
        tolerations::tolerations(),
        images::images(),
        objects::owners(),
        objects::conditions(),
    ]
}

fn gather(count: fn(&Kind) -> usize) -> Vec<Value> {
    let kinds = kinds();
    kinds.iter().zip(1..).flat_map(|(kind, seed)| kind.questions(seed, count(kind))).collect()
}

/// Every question.
pub(crate) fn all() -> Vec<Value> {
    gather(|kind| kind.all)
}

/// The questions whose answers are recorded.
pub(crate) fn fixed() -> Vec<Value> {
    gather(|kind| kind.recorded)
}
