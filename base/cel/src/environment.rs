//! What an expression may mention: variables with their types, and functions.

use std::collections::HashMap;
use std::sync::Arc;

use crate::check;
use crate::declare::{self, Functions, Overload};
use crate::depth;
use crate::error::{CompileError, CompileErrors};
use crate::kind::Type;
use crate::literals;
use crate::macros::Macros;
use crate::parse;
use crate::plan;
use crate::program::Program;
use crate::schema::Schema;

/// The type of `authorizer`.
pub(crate) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";

/// The longest expression that is looked at, in characters. Larger ones do not fit into what stores them.
const LONGEST: usize = 1 << 20;

/// The variables and functions that expressions of one place have.
#[derive(Clone)]
pub struct Environment {
    variables: Vec<Variable>,
    functions: &'static Functions,
    macros: Macros,
    /// The fields of `variables`, if there is such: each by its place and type.
    composed: Option<Composed>,
}

/// Named expressions by their names.
#[derive(Clone, Default)]
struct Composed {
    count: usize,
    fields: HashMap<String, (usize, Type)>,
}

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub kind: Type,
    /// What bounds its size, if it has a schema.
    pub schema: Option<Arc<Schema>>,
}

impl Environment {
    /// Kubernetes' base environment, without any variable.
    pub fn kubernetes() -> Environment {
        Environment {
            variables: Vec::new(),
            functions: &declare::KUBERNETES,
            macros: Macros::default(),
            composed: None,
        }
    }

    /// With a variable of a type, whose size is not known. It takes the place of one of the same name.
    #[must_use]
    pub fn with_variable(self, name: &str, kind: Type) -> Environment {
        self.with(Variable { name: name.to_owned(), kind, schema: None })
    }

    /// With a variable that has a schema, by which its size is estimated.
    #[must_use]
    pub fn with_schema(self, name: &str, schema: &Arc<Schema>) -> Environment {
        let (kind, schema) = (schema.kind(), Some(Arc::clone(schema)));
        self.with(Variable { name: name.to_owned(), kind, schema })
    }

    /// With a variable that is absent or has a schema (`oldSelf` of rules that ask for it).
    #[must_use]
    pub fn with_optional_schema(self, name: &str, schema: &Arc<Schema>) -> Environment {
        let (kind, schema) = (Type::optional(schema.kind()), Some(Arc::clone(schema)));
        self.with(Variable { name: name.to_owned(), kind, schema })
    }

    /// With `authorizer` and `authorizer.requestResource`, as admission has them.
    #[must_use]
    pub fn with_authorizer(self) -> Environment {
        self.with_variable("authorizer", Type::Library(AUTHORIZER)).with_variable(
            "authorizer.requestResource",
            Type::Library("kubernetes.authorization.ResourceCheck"),
        )
    }

    /// With `variables`, whose fields are the named expressions of a [`crate::Composition`].
    #[must_use]
    pub fn with_composition(mut self) -> Environment {
        self.composed = Some(Composed::default());
        self
    }

    /// Declares the next named expression of the composition by the type of its value; one that failed to compile has
    /// none. It hides one of the same name.
    pub fn compose(&mut self, name: &str, kind: Option<&Type>) {
        let composed = self.composed.get_or_insert_default();
        let kind = kind.map_or(Type::Dyn, declared);
        composed.fields.insert(name.to_owned(), (composed.count, kind));
        composed.count += 1;
    }

    /// Whether there is `variables`.
    pub(crate) fn is_composed(&self) -> bool {
        self.composed.is_some()
    }

    /// A named expression: its place and type.
    pub(crate) fn composed(&self, name: &str) -> Option<&(usize, Type)> {
        self.composed.as_ref()?.fields.get(name)
    }

    /// What device selectors have beside the base: `cel.bind` and `includes`.
    pub(crate) fn devices() -> Environment {
        Environment { functions: &declare::DEVICES, ..Environment::new_devices() }
    }

    /// What new ones have of that; `includes` is for lists as attributes, which nobody can have yet.
    pub(crate) fn new_devices() -> Environment {
        let macros = Macros { bind: true };
        Environment { variables: Vec::new(), functions: &declare::KUBERNETES, macros, composed: None }
    }

    fn with(mut self, variable: Variable) -> Environment {
        self.variables.retain(|other| other.name != variable.name);
        self.variables.push(variable);
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    pub(crate) fn function(&self, name: &str) -> Option<(&'static str, &'static [Overload])> {
        let (name, overloads) = self.functions.get_key_value(name)?;
        Some((name, overloads))
    }

    /// Parses, checks and prepares an expression.
    pub fn compile(&self, text: &str) -> Result<Program, CompileErrors> {
        let one = |error: CompileError| CompileErrors(vec![error]);
        let source: Vec<char> = text.chars().take(LONGEST + 1).collect();
        if source.len() > LONGEST {
            let message = format!(
                "expression code point size exceeds limit: size: {}, limit {LONGEST}",
                text.chars().count()
            );
            return Err(one(CompileError::whole(message)));
        }
        match depth::may_be_deep(&source) {
            false => self.compile_source(&source),
            true => depth::on_large_stack(|| self.compile_source(&source)).unwrap_or_else(|| {
                Err(one(CompileError::whole("no stack for an expression that nests so deeply")))
            }),
        }
    }

    fn compile_source(&self, source: &[char]) -> Result<Program, CompileErrors> {
        let one = |error: CompileError| CompileErrors(vec![error]);
        let parsed = parse::parse(source, self.macros).map_err(one)?;
        let checked = check::check(source, &parsed.expr, parsed.nodes, self).map_err(CompileErrors)?;
        literals::validate(source, &parsed.expr, &checked).map_err(CompileErrors)?;
        let root =
            plan::plan(&parsed.expr, &checked, self).map_err(|error| one(CompileError::whole(error)))?;
        Ok(Program::new(parsed.expr, checked, root, self.variables.clone()))
    }
}

/// The type that others see of a named expression: upstream forgets those that schemas do not have.
fn declared(kind: &Type) -> Type {
    match kind {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => kind.clone(),
        Type::List(element) => Type::list(declared(element)),
        Type::Map(both) => Type::map(declared(&both.0), declared(&both.1)),
        _ => Type::Dyn,
    }
}
