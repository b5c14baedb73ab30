//! Calls that are not calls: `has`, the comprehensions, the optional ones, and DRA's `cel.bind`.

use crate::ast::{Element, Expr, Fold, Kind, Literal};
use crate::error::CompileError;
use crate::parse::Parser;

/// The accumulator of a comprehension. No identifier in a text can be called so.
const ACCUMULATOR: &str = "@result";
/// What it was called once; still refused as a name.
const OLD_ACCUMULATOR: &str = "__result__";
const UNUSED: &str = "#unused";

/// Which macros there are beside those that every environment has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Macros {
    /// `cel.bind(name, value, expression)`.
    pub bind: bool,
}

/// A call of a global function, or what a macro makes of it.
pub(crate) fn global(
    parser: &mut Parser<'_>,
    at: usize,
    name: &str,
    mut args: Vec<Expr>,
) -> Result<Expr, CompileError> {
    if name != "has" || args.len() != 1 {
        return Ok(parser.call(at, name, args));
    }
    match args.remove(0).kind {
        Kind::Select { operand, field, test_only: false } => {
            Ok(parser.node(at, Kind::Select { operand, field, test_only: true }))
        }
        _ => Err(parser.refused(at, "invalid argument to has() macro")),
    }
}

/// A call of a function of `target`, or what a macro makes of it.
pub(crate) fn member(
    parser: &mut Parser<'_>,
    at: usize,
    target: Expr,
    name: &str,
    args: Vec<Expr>,
    macros: Macros,
) -> Result<Expr, CompileError> {
    let mut expand = Expand { parser, at };
    match (name, args.len()) {
        ("all" | "exists" | "exists_one", 2 | 3) | ("existsOne", 3) => expand.quantifier(name, target, args),
        ("map", 2 | 3) | ("filter", 2) => expand.one_list(name, target, args),
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            expand.transform(name, target, args)
        }
        ("optMap" | "optFlatMap", 2) => expand.optional(name, target, args),
        ("sortBy", 2) => expand.sort_by(target, args),
        ("bind", 3) if macros.bind && matches!(&target.kind, Kind::Ident(name) if name == "cel") => {
            expand.bind(args)
        }
        _ => Ok(parser.member_call(at, name, target, args)),
    }
}

struct Expand<'p, 's> {
    parser: &'p mut Parser<'s>,
    at: usize,
}

impl Expand<'_, '_> {
    fn node(&mut self, kind: Kind) -> Expr {
        self.parser.node(self.at, kind)
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(Kind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(Kind::Literal(literal))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.parser.call(self.at, function, args)
    }

    fn list(&mut self, of: Vec<Expr>) -> Expr {
        let elements = of.into_iter().map(|value| Element { value, optional: false }).collect();
        self.node(Kind::List(elements))
    }

    fn fold(&mut self, fold: Fold) -> Expr {
        self.node(Kind::Fold(Box::new(fold)))
    }

    fn name(&self, arg: &Expr, message: &str) -> Result<String, CompileError> {
        match &arg.kind {
            Kind::Ident(name) if name == ACCUMULATOR || name == OLD_ACCUMULATOR => {
                Err(self.parser.refused(arg.at, "iteration variable overwrites accumulator variable"))
            }
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err(self.parser.refused(arg.at, message)),
        }
    }

    /// The first one or two arguments as names of variables, by how many others there are.
    fn names(&self, args: &mut Vec<Expr>, two: bool) -> Result<(String, Option<String>), CompileError> {
        let message = "argument must be a simple name";
        let first = args.remove(0);
        let var = self.name(&first, message)?;
        if !two {
            return Ok((var, None));
        }
        let second = args.remove(0);
        let var2 = self.name(&second, message)?;
        if var == var2 {
            return Err(self.parser.refused(second.at, format!("duplicate variable name: {var}")));
        }
        Ok((var, Some(var2)))
    }

    fn quantifier(&mut self, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, CompileError> {
        let two = args.len() == 3;
        let (var, var2) = self.names(&mut args, two)?;
        let predicate = args.remove(0);
        let accu = self.accumulator();
        let (init, condition, step, result);
        match name {
            "all" => {
                init = self.literal(Literal::Bool(true));
                condition = self.call("@not_strictly_false", vec![accu]);
                let accu = self.accumulator();
                step = self.call("_&&_", vec![accu, predicate]);
                result = self.accumulator();
            }
            "exists" => {
                init = self.literal(Literal::Bool(false));
                let not = self.call("!_", vec![accu]);
                condition = self.call("@not_strictly_false", vec![not]);
                let accu = self.accumulator();
                step = self.call("_||_", vec![accu, predicate]);
                result = self.accumulator();
            }
            _ => {
                init = self.literal(Literal::Int(0));
                condition = self.literal(Literal::Bool(true));
                let one = self.literal(Literal::Int(1));
                let more = self.call("_+_", vec![accu, one]);
                let accu = self.accumulator();
                step = self.call("_?_:_", vec![predicate, more, accu]);
                let (accu, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                result = self.call("_==_", vec![accu, one]);
            }
        }
        let accu_var = ACCUMULATOR.to_owned();
        Ok(self.fold(Fold { range, var, var2, accu_var, init, condition, step, result }))
    }

    /// `map` and `filter`.
    fn one_list(&mut self, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, CompileError> {
        let var_at = args[0].at;
        let var = self.name(&args.remove(0), "argument is not an identifier")?;
        let filter = (args.len() == 2 || name == "filter").then(|| args.remove(0));
        let made = match args.pop() {
            Some(made) => made,
            None => self.parser.node(var_at, Kind::Ident(var.clone())),
        };
        Ok(self.collect(range, (var, None), filter, made))
    }

    /// A fold that makes a list of what `made` is for each element that passes `filter`.
    fn collect(
        &mut self,
        range: Expr,
        (var, var2): (String, Option<String>),
        filter: Option<Expr>,
        made: Expr,
    ) -> Expr {
        let (accu, one) = (self.accumulator(), self.list(vec![made]));
        let step = self.call("_+_", vec![accu, one]);
        let init = self.list(Vec::new());
        self.gather(range, (var, var2), filter, step, init)
    }

    fn gather(
        &mut self,
        range: Expr,
        (var, var2): (String, Option<String>),
        filter: Option<Expr>,
        mut step: Expr,
        init: Expr,
    ) -> Expr {
        if let Some(filter) = filter {
            let accu = self.accumulator();
            step = self.call("_?_:_", vec![filter, step, accu]);
        }
        let condition = self.literal(Literal::Bool(true));
        let result = self.accumulator();
        let accu_var = ACCUMULATOR.to_owned();
        self.fold(Fold { range, var, var2, accu_var, init, condition, step, result })
    }

    fn transform(&mut self, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, CompileError> {
        let (var, var2) = self.names(&mut args, true)?;
        let filter = (args.len() == 2).then(|| args.remove(0));
        let made = args.remove(0);
        if name == "transformList" {
            return Ok(self.collect(range, (var, var2), filter, made));
        }
        let accu = self.accumulator();
        let step = match name {
            "transformMap" => {
                let key = self.ident(&var);
                self.call("cel.@mapInsert", vec![accu, key, made])
            }
            _ => self.call("cel.@mapInsert", vec![accu, made]),
        };
        let init = self.node(Kind::Map(Vec::new()));
        Ok(self.gather(range, (var, var2), filter, step, init))
    }

    /// A fold over nothing, whose accumulator is the name of a value that is made when it is first asked for.
    fn binding(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        let (var, accu_var) = (UNUSED.to_owned(), name.to_owned());
        self.fold(Fold { range, var, var2: None, accu_var, init: value, condition, step, result })
    }

    fn bind(&mut self, mut args: Vec<Expr>) -> Result<Expr, CompileError> {
        let Kind::Ident(name) = &args[0].kind else {
            let message = "cel.bind() variable names must be simple identifiers";
            return Err(self.parser.refused(args[0].at, message));
        };
        let name = name.clone();
        let (result, value) = (args.remove(2), args.remove(1));
        Ok(self.binding(&name, value, result))
    }

    fn optional(
        &mut self,
        macro_name: &str,
        target: Expr,
        mut args: Vec<Expr>,
    ) -> Result<Expr, CompileError> {
        let Kind::Ident(name) = &args[0].kind else {
            let message = format!("{macro_name}() variable name must be a simple identifier");
            return Err(self.parser.refused(args[0].at, message));
        };
        let name = name.clone();
        let again = self.renumbered(target.clone());
        let has = self.parser.member_call(self.at, "hasValue", target, Vec::new());
        let value = self.parser.member_call(self.at, "value", again, Vec::new());
        let mut made = self.binding(&name, value, args.remove(1));
        if macro_name == "optMap" {
            made = self.call("optional.of", vec![made]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![has, made, none]))
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Result<Expr, CompileError> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct { .. }) {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(self.parser.refused(target.at, message));
        }
        let input = self.ident(INPUT);
        let keys = self.one_list("map", input, args)?;
        let input = self.ident(INPUT);
        let sorted = self.parser.member_call(self.at, "@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.binding(INPUT, target, sorted))
    }

    /// The same tree with numbers of its own.
    fn renumbered(&mut self, mut expr: Expr) -> Expr {
        expr.id = self.node(Kind::Literal(Literal::Null)).id;
        let mut one = |inner: &mut Expr| {
            let taken = std::mem::replace(inner, Expr { id: 0, at: 0, kind: Kind::Literal(Literal::Null) });
            *inner = self.renumbered(taken);
        };
        match &mut expr.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => {}
            Kind::Select { operand, .. } => one(operand),
            Kind::Call { target, args, .. } => {
                target.iter_mut().for_each(|target| one(target));
                args.iter_mut().for_each(one);
            }
            Kind::List(elements) => elements.iter_mut().for_each(|element| one(&mut element.value)),
            Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
                one(&mut entry.key);
                one(&mut entry.value);
            }),
            Kind::Fold(fold) => {
                let fold = &mut **fold;
                [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result]
                    .into_iter()
                    .for_each(one);
            }
        }
        expr
    }
}
