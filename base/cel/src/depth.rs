//! Expressions that nest deeply get a stack of their own: upstream takes 250 levels of each rule of the grammar, which is more
//! than the stack of a worker can be trusted with.

use crate::ast::{Expr, Kind};

/// Bytes of that stack; only what is used is ever touched.
const STACK: usize = 64 << 20;
/// How deep brackets may nest on the stack of the caller.
const SHALLOW_BRACKETS: usize = 20;
/// How many operators a text may have that is parsed there.
const SHALLOW_OPERATORS: usize = 150;
/// How deep a tree may be that is walked there.
const SHALLOW_TREE: usize = 120;

/// Whether a text may be that of a deep tree.
pub(crate) fn may_be_deep(source: &[char]) -> bool {
    let (mut depth, mut deepest, mut operators) = (0usize, 0usize, 0usize);
    for c in source {
        match c {
            '(' | '[' | '{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '+' | '-' | '*' | '/' | '%' | '.' | '?' | '=' | '<' | '>' | '!' => operators += 1,
            _ => {}
        }
    }
    // `in` is the one operator that is a word.
    deepest > SHALLOW_BRACKETS
        || operators + source.windows(2).filter(|two| *two == ['i', 'n']).count() > SHALLOW_OPERATORS
}

/// How many levels a tree has.
pub(crate) fn levels(expr: &Expr) -> usize {
    let (mut level, mut levels) = (vec![expr], 0);
    while !level.is_empty() {
        level = level.into_iter().flat_map(children).collect();
        levels += 1;
    }
    levels
}

/// Whether so many levels take a large stack.
pub(crate) fn is_deep_at(levels: usize) -> bool {
    levels > SHALLOW_TREE
}

fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => Vec::new(),
        Kind::Select { operand, .. } => vec![operand],
        Kind::Call { target, args, .. } => target.as_deref().into_iter().chain(args).collect(),
        Kind::List(elements) => elements.iter().map(|element| &element.value).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
        Kind::Fold(fold) => {
            vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
        }
    }
}

/// Does the work on a large stack; nothing if there is none to be had.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("cel".to_owned()).stack_size(STACK);
        let thread = builder.spawn_scoped(scope, work).ok()?;
        match thread.join() {
            Ok(result) => Some(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
