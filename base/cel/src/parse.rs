//! Text to a tree, by CEL's grammar: precedence, optional syntax, literals, macros.
//!
//! How deep an expression may nest is upstream's: 250 of each rule of the grammar on one path. Chains of `&&` and `||` are one
//! node with many operands, so that a long one is not deep.
//!
//! <https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax>

use crate::ast::{Element, Entry, Expr, Kind, Literal};
use crate::error::CompileError;
use crate::lex::{self, Lexeme, Token};
use crate::macros::{self, Macros};
use crate::names;

/// How often one rule may be inside of itself.
const DEEPEST: usize = 250;
/// What an operand begins with, as upstream says it.
const PRIMARY: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// A parsed expression and how many nodes it has.
pub(crate) struct Parsed {
    pub expr: Expr,
    pub nodes: usize,
}

/// Parses `source`; `macros` are those that the environment has.
pub(crate) fn parse(source: &[char], macros: Macros) -> Result<Parsed, CompileError> {
    let tokens = lex::tokens(source).map_err(|error| CompileError::at(source, error.at, error.message))?;
    let mut parser = Parser { source, tokens, next: 0, nodes: 0, depth: [0; 4], macros };
    let expr = parser.expr()?;
    match parser.peek() {
        Lexeme::End => Ok(Parsed { expr, nodes: parser.nodes }),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

/// The rules of the grammar that contain themselves.
#[derive(Clone, Copy)]
enum Rule {
    Expr,
    Relation,
    Calc,
    Member,
}

pub(crate) struct Parser<'a> {
    source: &'a [char],
    tokens: Vec<Token>,
    next: usize,
    nodes: usize,
    depth: [usize; 4],
    macros: Macros,
}

type Parse<T> = Result<T, CompileError>;

impl Parser<'_> {
    fn peek(&self) -> &Lexeme {
        &self.tokens[self.next].kind
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    fn advance(&mut self) -> Lexeme {
        let token = self.tokens[self.next].kind.clone();
        if token != Lexeme::End {
            self.next += 1;
        }
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Lexeme::Symbol(found) if *found == symbol)
    }

    /// Takes `symbol` if it is next, and says where it stood.
    fn take(&mut self, symbol: &str) -> Option<usize> {
        let at = self.at();
        self.is(symbol).then(|| {
            self.next += 1;
            at
        })
    }

    fn expect(&mut self, symbol: &str) -> Parse<usize> {
        self.take(symbol).ok_or_else(|| self.unexpected(&format!("'{symbol}'")))
    }

    pub(crate) fn refused(&self, at: usize, message: impl Into<String>) -> CompileError {
        CompileError::at(self.source, at, message.into())
    }

    fn unexpected(&self, expected: &str) -> CompileError {
        let from = self.at();
        let to = self.tokens.get(self.next + 1).map_or(self.source.len(), |token| token.at);
        let found: String = match self.peek() {
            Lexeme::End => "<EOF>".to_owned(),
            _ => self.source[from..to.max(from)].iter().collect::<String>().trim_end().to_owned(),
        };
        self.refused(from, format!("Syntax error: mismatched input '{found}' expecting {expected}"))
    }

    /// A new node.
    pub(crate) fn node(&mut self, at: usize, kind: Kind) -> Expr {
        let id = self.nodes;
        self.nodes += 1;
        Expr { id, at, kind }
    }

    /// A call of a global function or an operator.
    pub(crate) fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.node(at, Kind::Call { target: None, function: function.to_owned(), args })
    }

    /// A call of a function of `target`.
    pub(crate) fn member_call(&mut self, at: usize, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let target = Some(Box::new(target));
        self.node(at, Kind::Call { target, function: function.to_owned(), args })
    }

    fn enter(&mut self, rule: Rule) -> Parse<()> {
        self.depth[rule as usize] += 1;
        if self.depth[rule as usize] > DEEPEST {
            return Err(CompileError::whole(format!("expression recursion limit exceeded: {DEEPEST}")));
        }
        Ok(())
    }

    fn leave(&mut self, rule: Rule, times: usize) {
        self.depth[rule as usize] -= times;
    }

    pub(crate) fn expr(&mut self) -> Parse<Expr> {
        self.enter(Rule::Expr)?;
        let condition = self.disjunction()?;
        let expr = match self.take("?") {
            None => condition,
            Some(at) => {
                let then = self.disjunction()?;
                self.expect(":")?;
                let otherwise = self.expr()?;
                self.call(at, "_?_:_", vec![condition, then, otherwise])
            }
        };
        self.leave(Rule::Expr, 1);
        Ok(expr)
    }

    fn disjunction(&mut self) -> Parse<Expr> {
        self.chain("||", "_||_", Parser::conjunction)
    }

    fn conjunction(&mut self) -> Parse<Expr> {
        self.chain("&&", "_&&_", Parser::relation)
    }

    fn chain(&mut self, symbol: &str, function: &str, operand: fn(&mut Self) -> Parse<Expr>) -> Parse<Expr> {
        let first = operand(self)?;
        let Some(at) = self.take(symbol) else { return Ok(first) };
        let mut operands = vec![first, operand(self)?];
        while self.take(symbol).is_some() {
            operands.push(operand(self)?);
        }
        Ok(self.call(at, function, operands))
    }

    fn relation(&mut self) -> Parse<Expr> {
        self.enter(Rule::Relation)?;
        let mut left = self.sum()?;
        let mut pushed = 0;
        while let Some((at, function)) = self.operator(&[
            ("<", "_<_"),
            ("<=", "_<=_"),
            (">=", "_>=_"),
            (">", "_>_"),
            ("==", "_==_"),
            ("!=", "_!=_"),
            ("in", "@in"),
        ]) {
            self.push(Rule::Relation, &mut pushed)?;
            let right = self.sum()?;
            left = self.call(at, function, vec![left, right]);
        }
        self.pop(Rule::Relation, pushed);
        Ok(left)
    }

    /// Another operand of a chain. The first one is on the level of the rule itself.
    fn push(&mut self, rule: Rule, pushed: &mut usize) -> Parse<()> {
        if *pushed > 0 {
            self.enter(rule)?;
        }
        *pushed += 1;
        Ok(())
    }

    /// The end of a chain.
    fn pop(&mut self, rule: Rule, pushed: usize) {
        self.leave(rule, pushed.max(1));
    }

    fn operator(&mut self, table: &[(&'static str, &'static str)]) -> Option<(usize, &'static str)> {
        let (symbol, function) = table.iter().find(|(symbol, _)| self.is(symbol))?;
        Some((self.take(symbol)?, function))
    }

    fn sum(&mut self) -> Parse<Expr> {
        self.enter(Rule::Calc)?;
        let mut pushed = 0;
        let mut left = self.product(&mut pushed)?;
        while let Some((at, function)) = self.operator(&[("+", "_+_"), ("-", "_-_")]) {
            self.push(Rule::Calc, &mut pushed)?;
            let mut inner = 0;
            let right = self.product(&mut inner)?;
            self.leave(Rule::Calc, inner.saturating_sub(1));
            left = self.call(at, function, vec![left, right]);
        }
        self.pop(Rule::Calc, pushed);
        Ok(left)
    }

    /// A product, whose operands count as those of the sum around it.
    fn product(&mut self, pushed: &mut usize) -> Parse<Expr> {
        let mut left = self.unary()?;
        while let Some((at, function)) = self.operator(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")]) {
            self.push(Rule::Calc, pushed)?;
            let right = self.unary()?;
            left = self.call(at, function, vec![left, right]);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let Some(at) = self.take(symbol) else { continue };
            let mut count = 1;
            while self.take(symbol).is_some() {
                count += 1;
            }
            if symbol == "-" && count == 1 && self.is_number() {
                return self.member(Some(at));
            }
            let operand = self.member(None)?;
            return Ok(match count % 2 {
                0 => operand,
                _ => self.call(at, function, vec![operand]),
            });
        }
        self.member(None)
    }

    fn is_number(&self) -> bool {
        matches!(self.peek(), Lexeme::Number(..) | Lexeme::Literal(Literal::Double(_)))
    }

    /// A member expression; `minus` is where the sign of a number in front of it stands.
    fn member(&mut self, minus: Option<usize>) -> Parse<Expr> {
        self.enter(Rule::Member)?;
        let mut pushed = 0;
        let mut left = self.primary(minus)?;
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                self.push(Rule::Member, &mut pushed)?;
                left = self.selection(at, optional, left)?;
            } else if let Some(at) = self.take("[") {
                let optional = self.take("?").is_some();
                self.push(Rule::Member, &mut pushed)?;
                let index = self.expr()?;
                self.expect("]")?;
                left = self.call(at, if optional { "_[?_]" } else { "_[_]" }, vec![left, index]);
            } else {
                self.pop(Rule::Member, pushed);
                return Ok(left);
            }
        }
    }

    fn selection(&mut self, at: usize, optional: bool, left: Expr) -> Parse<Expr> {
        if let Some(at) = self.take("`") {
            return Err(self.refused(at, "unsupported syntax: '`'"));
        }
        let name_at = self.at();
        let Lexeme::Ident(name) = self.peek().clone() else {
            return Err(self.unexpected("IDENTIFIER"));
        };
        self.advance();
        if optional {
            let field = self.node(name_at, Kind::Literal(Literal::String(name.into())));
            return Ok(self.call(at, "_?._", vec![left, field]));
        }
        match self.take("(") {
            None => {
                let operand = Box::new(left);
                Ok(self.node(at, Kind::Select { operand, field: name, test_only: false }))
            }
            Some(open) => {
                let args = self.arguments()?;
                macros::member(self, open, left, &name, args, self.macros)
            }
        }
    }

    /// What stands between the brackets of a call, the closing one included.
    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let mut args = Vec::new();
        if self.take(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.take(")").is_some() {
                return Ok(args);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self, minus: Option<usize>) -> Parse<Expr> {
        let at = self.at();
        match self.advance() {
            Lexeme::Literal(Literal::Double(value)) => {
                let value = if minus.is_some() { -value } else { value };
                Ok(self.node(minus.unwrap_or(at), Kind::Literal(Literal::Double(value))))
            }
            Lexeme::Literal(literal) => Ok(self.node(at, Kind::Literal(literal))),
            Lexeme::Number(radix, digits) => {
                let text = if minus.is_some() { format!("-{digits}") } else { digits };
                let value = i64::from_str_radix(&text, radix)
                    .map_err(|_| self.refused(minus.unwrap_or(at), "invalid int literal"))?;
                Ok(self.node(minus.unwrap_or(at), Kind::Literal(Literal::Int(value))))
            }
            Lexeme::Ident(name) => self.name(at, name),
            Lexeme::Symbol(".") => match self.advance() {
                Lexeme::Ident(name) => self.name(at, name),
                _ => {
                    self.next -= 1;
                    Err(self.unexpected("IDENTIFIER"))
                }
            },
            Lexeme::Symbol("(") => {
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Lexeme::Symbol("[") => self.list(at),
            Lexeme::Symbol("{") => self.map(at),
            other => {
                if other != Lexeme::End {
                    self.next -= 1;
                }
                Err(self.unexpected(PRIMARY))
            }
        }
    }

    fn name(&mut self, at: usize, name: String) -> Parse<Expr> {
        if self.is_message() {
            return self.message(at, name);
        }
        if names::KEPT.contains(&name.as_str()) {
            return Err(self.refused(at, format!("reserved identifier: {name}")));
        }
        match self.take("(") {
            None => Ok(self.node(at, Kind::Ident(name))),
            Some(open) => {
                let args = self.arguments()?;
                macros::global(self, open, &name, args)
            }
        }
    }

    /// Whether the name that was just read goes on as that of an object literal: `a.b.C{`.
    fn is_message(&self) -> bool {
        let mut at = self.next;
        loop {
            match (&self.tokens[at].kind, self.tokens.get(at + 1).map(|token| &token.kind)) {
                (Lexeme::Symbol("{"), _) => return true,
                (Lexeme::Symbol("."), Some(Lexeme::Ident(_))) => at += 2,
                _ => return false,
            }
        }
    }

    fn message(&mut self, at: usize, mut name: String) -> Parse<Expr> {
        while self.take(".").is_some() {
            if let Lexeme::Ident(part) = self.advance() {
                name = format!("{name}.{part}");
            }
        }
        self.expect("{")?;
        while self.take("}").is_none() {
            self.take("?");
            let Lexeme::Ident(_) = self.advance() else {
                self.next -= 1;
                return Err(self.unexpected("IDENTIFIER"));
            };
            self.expect(":")?;
            self.expr()?;
            if self.take(",").is_none() && !self.is("}") {
                return Err(self.unexpected("'}'"));
            }
        }
        Ok(self.node(at, Kind::Struct { name }))
    }

    fn list(&mut self, at: usize) -> Parse<Expr> {
        let mut elements = Vec::new();
        while self.take("]").is_none() {
            if elements.is_empty() && self.take(",").is_some() {
                self.expect("]")?;
                break;
            }
            let optional = self.take("?").is_some();
            elements.push(Element { value: self.expr()?, optional });
            if self.take(",").is_none() && !self.is("]") {
                return Err(self.unexpected("']'"));
            }
        }
        Ok(self.node(at, Kind::List(elements)))
    }

    fn map(&mut self, at: usize) -> Parse<Expr> {
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            if entries.is_empty() && self.take(",").is_some() {
                self.expect("}")?;
                break;
            }
            let optional = self.take("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expr()?, optional });
            if self.take(",").is_none() && !self.is("}") {
                return Err(self.unexpected("'}'"));
            }
        }
        Ok(self.node(at, Kind::Map(entries)))
    }
}
