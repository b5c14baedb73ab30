//! The tree of an expression, macros expanded.

use crate::text::Text;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    /// Its number in the tree, under which the checker keeps what it finds.
    pub id: usize,
    /// Where it stands: characters from the start.
    pub at: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        test_only: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// An object by the name of its type: refused by the checker, as no environment has a type that can be made so.
    Struct {
        name: String,
    },
    Fold(Box<Fold>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'static>),
    Bytes(Vec<u8>),
}

/// An element of a list literal.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub value: Expr,
    pub optional: bool,
}

/// An entry of a map literal.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// A comprehension: folds a range into an accumulator.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub range: Expr,
    pub var: String,
    pub var2: Option<String>,
    pub accu_var: String,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Expr {
    /// The dotted name that it is, if it is nothing but identifiers and selections.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test_only: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }
}
