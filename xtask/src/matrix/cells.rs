//! The cells of the matrix: which participants are ours in each, and which cells are run.

use podwire_testkit::stack::Ours;

/// The axes, in the order of the table and of the letters in a cell's name.
pub(super) const AXES: [&str; 8] =
    ["API", "scheduler", "kubelet", "runtime", "CNI", "driver", "store", "controllers"];
/// The axes of which every combination is run when all is asked for: the first ones.
const COMBINED: usize = 5;

/// Which participants are ours, one bit per axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell(u16);

impl Cell {
    const ALL_OURS: Cell = Cell((1 << AXES.len()) - 1);
    const NONE_OURS: Cell = Cell(0);

    /// Every cell that could be run, all ours first.
    pub(super) fn all() -> impl Iterator<Item = Cell> {
        (0..=Cell::ALL_OURS.0).rev().map(Cell)
    }

    /// The cell of that name.
    pub(super) fn named(name: &str) -> Option<Cell> {
        Cell::all().find(|cell| cell.name() == name)
    }

    /// One letter per axis: o ours, u upstream.
    pub(super) fn name(self) -> String {
        self.values().map(|ours| if ours { 'o' } else { 'u' }).collect()
    }

    /// Axis by axis, whether the participant is ours.
    pub(super) fn values(self) -> impl Iterator<Item = bool> {
        (0..AXES.len()).map(move |at| self.has(at))
    }

    fn has(self, at: usize) -> bool {
        self.0 & (1 << at) != 0
    }

    /// The same for the one who starts them.
    pub(super) fn ours(self) -> Ours {
        let has = |axis| AXES.iter().position(|known| *known == axis).is_some_and(|at| self.has(at));
        Ours {
            api: has("API"),
            store: has("store"),
            controllers: has("controllers"),
            scheduler: has("scheduler"),
            kubelet: has("kubelet"),
            runtime: has("runtime"),
            cni: has("CNI"),
            driver: has("driver"),
        }
    }

    /// The cells of a run: all ours, each single swap, each single one of ours, all upstream; with `every` also all
    /// combinations of the first five axes with the others ours, and a few cells that have every pair of values of every
    /// two axes.
    pub(super) fn chosen(every: bool) -> Vec<Cell> {
        let singles = (0..AXES.len()).map(|at| Cell(1 << at));
        let mut cells = vec![Cell::ALL_OURS, Cell::NONE_OURS];
        cells.extend(singles.clone().map(|one| Cell(Cell::ALL_OURS.0 & !one.0)));
        cells.extend(singles);
        if every {
            let others = Cell::ALL_OURS.0 & !((1 << COMBINED) - 1);
            cells.extend((0..1 << COMBINED).map(|mix| Cell(others | mix)));
            cells.extend(Cell::covering());
        }
        cells.sort_by(|a, b| b.cmp(a));
        cells.dedup();
        cells
    }

    /// Few cells that have every pair: always the one next that has most of the pairs that are left, the mixed one of
    /// several.
    fn covering() -> Vec<Cell> {
        let mut left = pairs();
        let mut cells = Vec::new();
        while !left.is_empty() {
            let new = |cell: &Cell| left.iter().filter(|pair| pair.in_cell(*cell)).count();
            let mixed = |cell: &Cell| {
                let ours = cell.values().filter(|ours| *ours).count();
                ours.min(AXES.len() - ours)
            };
            let Some(next) = Cell::all().max_by_key(|cell| (new(cell), mixed(cell))) else { break };
            left.retain(|pair| !pair.in_cell(next));
            cells.push(next);
        }
        cells
    }
}

/// Values of two axes.
#[derive(Clone, Copy, Debug)]
struct Pair {
    axes: (usize, usize),
    ours: (bool, bool),
}

impl Pair {
    fn in_cell(self, cell: Cell) -> bool {
        (cell.has(self.axes.0), cell.has(self.axes.1)) == self.ours
    }
}

/// Every pair of values of every two axes.
fn pairs() -> Vec<Pair> {
    let axes = (0..AXES.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    let values = [(true, true), (true, false), (false, true), (false, false)];
    axes.flat_map(|axes| values.map(|ours| Pair { axes, ours })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_values_of_every_two_axes_occurs() {
        let cells = Cell::covering();
        assert!(cells.len() <= 8, "a few: {cells:?}");
        assert_eq!(pairs().len(), 8 * 7 / 2 * 4);
        for (first, one) in AXES.iter().enumerate() {
            for (second, other) in AXES.iter().enumerate().filter(|(second, _)| *second != first) {
                for wanted in [(true, true), (true, false), (false, true), (false, false)] {
                    let has = |cell: &Cell| (cell.has(first), cell.has(second)) == wanted;
                    assert!(cells.iter().any(has), "{one} and {other}: {wanted:?} in {cells:?}");
                }
            }
        }
        let all = Cell::chosen(true);
        assert!(cells.iter().all(|cell| all.contains(cell)));
    }

    #[test]
    fn the_quick_cells_are_the_corners_and_their_neighbours() {
        let quick = Cell::chosen(false);
        assert_eq!(quick.len(), 18);
        for name in ["oooooooo", "uuuuuuuu", "ooooooou", "uooooooo", "uuuuuuuo", "ouuuuuuu"] {
            assert!(quick.contains(&Cell::named(name).unwrap()), "{name}");
        }
        let all = Cell::chosen(true);
        assert!(quick.iter().all(|cell| all.contains(cell)));
        let combined = all.iter().filter(|cell| cell.name().ends_with("ooo")).count();
        assert!(combined >= 32, "{combined}");
    }

    #[test]
    fn letters_stand_for_the_axes_in_order() {
        let cell = Cell::named("uoooooou").unwrap();
        assert_eq!(cell.name(), "uoooooou");
        assert_eq!(cell.ours(), Ours { api: false, controllers: false, ..Ours::ALL });
        assert_eq!(Cell::named("oooouooo").unwrap().ours(), Ours { cni: false, ..Ours::ALL });
        assert_eq!(Cell::named("oooooouo").unwrap().ours(), Ours { store: false, ..Ours::ALL });
        assert_eq!(Cell::named("ooooouoo").unwrap().ours(), Ours { driver: false, ..Ours::ALL });
        assert_eq!((Cell::named("ooooo"), Cell::named("oooooooox")), (None, None));
    }
}
