//! Whether one type can stand for another, and what the free ones must be for that.

use std::collections::HashMap;

use crate::kind::Type;

/// What was found out about free types, with a way back to an earlier state.
#[derive(Default)]
pub(crate) struct Bindings {
    found: HashMap<u32, Type>,
    /// What each change replaced.
    log: Vec<(u32, Option<Type>)>,
    next: u32,
}

impl Bindings {
    /// A type about which nothing is known yet.
    pub(crate) fn fresh(&mut self) -> Type {
        let number = self.next;
        self.next += 1;
        Type::Free(number)
    }

    fn set(&mut self, number: u32, kind: Type) {
        let before = self.found.insert(number, kind);
        self.log.push((number, before));
    }

    /// Whether each of `left` can be assigned to the one of `right` at its place; nothing is remembered unless all can.
    pub(crate) fn assign_all(&mut self, left: &[Type], right: &[Type]) -> bool {
        let mark = self.log.len();
        let fits = left.len() == right.len() && left.iter().zip(right).all(|(l, r)| self.fits(l, r));
        if !fits {
            while self.log.len() > mark {
                match self.log.pop() {
                    Some((number, Some(before))) => drop(self.found.insert(number, before)),
                    Some((number, None)) => drop(self.found.remove(&number)),
                    None => {}
                }
            }
        }
        fits
    }

    /// Whether `left` can be assigned to `right`.
    pub(crate) fn assign(&mut self, left: &Type, right: &Type) -> bool {
        self.assign_all(std::slice::from_ref(left), std::slice::from_ref(right))
    }

    fn fits(&mut self, left: &Type, right: &Type) -> bool {
        if let Type::Free(number) = right {
            match self.substitutes(left, right, *number) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Free(number) = left {
            return self.substitutes(right, left, *number).0;
        }
        if left.is_dyn_or_error() || right.is_dyn_or_error() {
            return true;
        }
        match (left, right) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => {
                self.fits(left, right)
            }
            (Type::Map(left), Type::Map(right)) => {
                self.fits(&left.0, &right.0) && self.fits(&left.1, &right.1)
            }
            (Type::Type(_), Type::Type(_)) => true,
            (left, right) => left.is_exactly(right),
        }
    }

    /// Whether the free type `free` can be `kind`, and whether it was something before.
    fn substitutes(&mut self, kind: &Type, free: &Type, number: u32) -> (bool, bool) {
        if kind.is_exactly(free) {
            return (true, true);
        }
        if let Some(found) = self.found.get(&number).cloned() {
            if kind.is_exactly(&found) {
                return (true, true);
            }
            if !self.fits(kind, &found) {
                return (false, true);
            }
            let general = most_general(kind, &found);
            if self.is_apart(free, general) {
                self.set(number, general.clone());
            }
            return (true, true);
        }
        if self.is_apart(free, kind) {
            self.set(number, kind.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether `free` is no part of `within`.
    fn is_apart(&self, free: &Type, within: &Type) -> bool {
        if free.is_exactly(within) {
            return false;
        }
        match within {
            Type::Free(number) => self.found.get(number).is_none_or(|found| self.is_apart(free, found)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => self.is_apart(free, inner),
            Type::Map(both) => self.is_apart(free, &both.0) && self.is_apart(free, &both.1),
            _ => true,
        }
    }

    /// `kind` with what is known about its free types; what is not known is `dyn` in the end.
    pub(crate) fn resolve(&self, kind: &Type, end: bool) -> Type {
        match kind {
            Type::Free(number) => match self.found.get(number) {
                Some(found) => self.resolve(found, end),
                None if end => Type::Dyn,
                None => kind.clone(),
            },
            Type::List(inner) => Type::list(self.resolve(inner, end)),
            Type::Optional(inner) => Type::optional(self.resolve(inner, end)),
            Type::Map(both) => Type::map(self.resolve(&both.0, end), self.resolve(&both.1, end)),
            Type::Type(Some(inner)) => Type::Type(Some(self.resolve(inner, end).into())),
            other => other.clone(),
        }
    }

    /// A declared type with free ones for its parameters.
    pub(crate) fn instance(&mut self, kind: &Type, params: &mut Vec<(char, Type)>) -> Type {
        match kind {
            Type::Param(name) => match params.iter().find(|(other, _)| other == name) {
                Some((_, free)) => free.clone(),
                None => {
                    let free = self.fresh();
                    params.push((*name, free.clone()));
                    free
                }
            },
            Type::List(inner) => Type::list(self.instance(inner, params)),
            Type::Optional(inner) => Type::optional(self.instance(inner, params)),
            Type::Map(both) => Type::map(self.instance(&both.0, params), self.instance(&both.1, params)),
            Type::Type(Some(inner)) => Type::Type(Some(self.instance(inner, params).into())),
            other => other.clone(),
        }
    }
}

/// What `null` may stand for.
fn is_nullable(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Null
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Library(_)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// Of two types that fit, the one that says less.
pub(crate) fn most_general<'t>(left: &'t Type, right: &'t Type) -> &'t Type {
    if is_less_specific(left, right) { left } else { right }
}

fn is_less_specific(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Dyn | Type::Any | Type::Free(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Free(_)) => false,
        (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => {
            is_less_specific(left, right)
        }
        (Type::Map(left), Type::Map(right)) => {
            is_less_specific(&left.0, &right.0) && is_less_specific(&left.1, &right.1)
        }
        (Type::Type(_), Type::Type(_)) => true,
        (left, right) => left.is_exactly(right),
    }
}
