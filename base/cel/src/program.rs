//! A compiled expression.

use crate::ast::Expr;
use crate::check::Checked;
use crate::composition::Scope;
use crate::depth;
use crate::environment::Variable;
use crate::error::EvalError;
use crate::eval::Machine;
use crate::kind::Type;
use crate::plan::{Node, Plan};
use crate::value::Value;

/// An expression that was parsed, checked and made ready to run. Shared between threads.
pub struct Program {
    pub(crate) expr: Expr,
    pub(crate) checked: Checked,
    pub(crate) plan: Plan,
    pub(crate) variables: Vec<Variable>,
    /// The named expressions that it asks for, by their places.
    pub(crate) composed: Vec<usize>,
    /// How many levels its tree has.
    pub(crate) levels: usize,
    /// Whether walking it takes a large stack.
    pub(crate) deep: bool,
}

/// The values of an environment's variables.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a> {
    values: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Bindings<'a> {
    /// No variable has a value.
    pub fn new() -> Bindings<'a> {
        Bindings::default()
    }

    /// With a value for a variable.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Bindings<'a> {
        self.values.push((name, value));
        self
    }

    fn get(&self, name: &str) -> Option<Value<'a>> {
        self.values.iter().rev().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
    }
}

/// What an evaluation came to.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The value, or why there is none.
    pub value: Result<Value<'a>, EvalError>,
    /// What it cost, whether it succeeded or not.
    pub cost: u64,
}

impl Program {
    pub(crate) fn new(expr: Expr, checked: Checked, mut plan: Plan, variables: Vec<Variable>) -> Program {
        let levels = depth::levels(&expr);
        let composed = std::mem::take(&mut plan.composed);
        Program { expr, checked, plan, variables, composed, levels, deep: depth::is_deep_at(levels) }
    }

    /// The type of its value; `dyn` if that is known only when it runs.
    pub fn output_type(&self) -> &Type {
        &self.checked.types[self.expr.id]
    }

    /// Whether it mentions a variable.
    pub fn mentions(&self, name: &str) -> bool {
        match self.deep {
            true => depth::on_large_stack(|| mentions(&self.expr, name)).unwrap_or(true),
            false => mentions(&self.expr, name),
        }
    }

    /// Evaluates it. It ends with [`EvalError::TooExpensive`] when it costs more than `limit`
    /// ([`crate::limits::PER_CALL`] for most).
    pub fn evaluate<'a>(&'a self, bindings: &Bindings<'a>, limit: u64) -> Outcome<'a> {
        if self.deep {
            let none = || Outcome { value: Err(EvalError::TooExpensive), cost: 0 };
            return depth::on_large_stack(|| self.run(bindings, limit, None)).unwrap_or_else(none);
        }
        self.run(bindings, limit, None)
    }

    /// Evaluates it on the stack of the caller; `scope` has the named expressions.
    pub(crate) fn run<'a>(
        &'a self,
        bindings: &Bindings<'a>,
        limit: u64,
        scope: Option<&Scope<'a>>,
    ) -> Outcome<'a> {
        let globals = self.variables.iter().map(|variable| bindings.get(&variable.name)).collect();
        let mut machine = Machine::new(globals, &self.variables, self.plan.locals, limit, scope);
        let value = machine.eval(&self.plan.root);
        Outcome { value, cost: machine.cost() }
    }
}

fn mentions(expr: &Expr, name: &str) -> bool {
    use crate::ast::Kind;
    match &expr.kind {
        Kind::Literal(_) | Kind::Struct { .. } => false,
        Kind::Ident(other) => other == name,
        Kind::Select { operand, .. } => mentions(operand, name),
        Kind::Call { target, args, .. } => {
            target.iter().any(|target| mentions(target, name)) || args.iter().any(|arg| mentions(arg, name))
        }
        Kind::List(elements) => elements.iter().any(|element| mentions(&element.value, name)),
        Kind::Map(entries) => {
            entries.iter().any(|entry| mentions(&entry.key, name) || mentions(&entry.value, name))
        }
        Kind::Fold(fold) => [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            .into_iter()
            .any(|part| mentions(part, name)),
    }
}

/// A deep tree is also taken apart on a large stack.
impl Drop for Program {
    fn drop(&mut self) {
        if self.deep {
            let empty = Expr { id: 0, at: 0, kind: crate::ast::Kind::Struct { name: String::new() } };
            let expr = std::mem::replace(&mut self.expr, empty);
            let root = Node::Const(Value::Null);
            let plan = std::mem::replace(&mut self.plan, Plan { root, locals: 0, composed: Vec::new() });
            // Without a thread they are dropped here, which takes less than walking them.
            depth::on_large_stack(move || drop((expr, plan)));
        }
    }
}
