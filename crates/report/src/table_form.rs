//! The forms that tables for people have, and how a wide one is made to fit a narrow terminal.

use std::ops::Range;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Row, Table, TableStyle};

/// Lines under the headings alone.
const HEADED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A cell of figures, and the heading of a column of them.
pub(crate) fn right(text: impl Into<String>) -> Cell {
    Cell::new(text.into()).set_alignment(CellAlignment::Right)
}

/// A table with a line under its headings and none between its rows.
pub(crate) fn headed(headings: impl IntoIterator<Item = Cell>) -> Table {
    table(HEADED, headings)
}

/// A table with a line under each row.
pub(crate) fn ruled(headings: impl IntoIterator<Item = Cell>) -> Table {
    table(comfy_table::presets::UTF8_HORIZONTAL_ONLY, headings)
}

fn table(style: TableStyle, headings: impl IntoIterator<Item = Cell>) -> Table {
    let mut table = Table::new();
    table.load_style(style);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.into_iter().collect::<Vec<_>>());
    table
}

/// The table as text that fits a terminal of so many columns: as it is, else with one blank between its columns, else
/// in parts below each other, each beginning with the columns `names`, which say what a row is.
pub(crate) fn within(
    table: &Table,
    names: &Range<usize>,
    columns: Option<usize>,
    text: impl Fn(&Table) -> String,
) -> String {
    let wide = text(table);
    let Some(columns) = columns.filter(|columns| width(&wide) > *columns) else { return wide };
    let all: Vec<usize> = (0..table.column_max_content_widths().len()).collect();
    let close = text(&with_columns(table, &all, 0));
    if width(&close) <= columns {
        return close;
    }
    let parts = parts(table, names, columns);
    let parts: Vec<String> = parts.iter().map(|part| text(&with_columns(table, part, 0))).collect();
    parts.join("\n\n")
}

/// Characters of the longest line.
pub(crate) fn width(text: &str) -> usize {
    text.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
}

/// Which columns stand in which part: as many as there is room for, and one more than the names at least.
fn parts(table: &Table, names: &Range<usize>, columns: usize) -> Vec<Vec<usize>> {
    let widths = table.column_max_content_widths();
    let width = |part: &[usize]| part.iter().map(|column| usize::from(widths[*column]) + 1).sum::<usize>();
    let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
    for (column, own_width) in widths.iter().enumerate() {
        let part = parts.last_mut().expect("there is a first part");
        let is_begun = part.iter().any(|column| !names.contains(column));
        // The last column needs no blank behind it.
        if is_begun && !names.contains(&column) && width(part) + usize::from(*own_width) > columns {
            let whole: Vec<usize> = names.clone().chain([column]).collect();
            // Rows stand in the same order in each part: one name will do where there is no room for all.
            let is_too_wide = width(&whole) > columns + 1;
            parts.push(if is_too_wide { vec![names.start, column] } else { whole });
        } else {
            part.push(column);
        }
    }
    parts
}

/// These columns of a table, with so many blanks and one more between them.
pub(crate) fn with_columns(table: &Table, columns: &[usize], blanks: u16) -> Table {
    let picked = |row: &Row| -> Vec<Cell> {
        let cells: Vec<&Cell> = row.cell_iter().collect();
        columns
            .iter()
            .map(|column| cells.get(*column).map_or_else(|| Cell::new(""), |cell| (*cell).clone()))
            .collect()
    };
    let mut close = self::table(table.style(), table.header().map(picked).unwrap_or_default());
    close.add_rows(table.row_iter().map(picked));
    for column in close.column_iter_mut() {
        column.set_padding((0, blanks));
    }
    close
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = headed([Cell::new("name"), right("calls"), right("bytes"), Cell::new("called by")]);
        table.add_row(vec![
            Cell::new("allocate"),
            right("4,502"),
            right("11.7 GiB"),
            Cell::new("dgemm_tile"),
        ]);
        table.add_row(vec![Cell::new("all"), right("4,502")]);
        table
    }

    fn within_columns(columns: usize) -> String {
        crate::plain::trimmed(&within(&sample(), &(0..1), Some(columns), Table::to_string))
    }

    #[test]
    fn a_table_that_fits_stays() {
        assert_eq!(within(&sample(), &(0..1), None, Table::to_string), sample().to_string());
        assert_eq!(within(&sample(), &(0..1), Some(80), Table::to_string), sample().to_string());
    }

    #[test]
    fn a_wide_table_is_set_close_before_it_is_divided() {
        let close = "\
name     calls    bytes called by
──────────────────────────────────
allocate 4,502 11.7 GiB dgemm_tile
all      4,502";
        assert_eq!(within_columns(34), close);
    }

    #[test]
    fn where_that_is_too_wide_columns_go_on_below_behind_the_names_of_the_rows() {
        let divided = "\
name     calls    bytes
───────────────────────
allocate 4,502 11.7 GiB
all      4,502

name     called by
───────────────────
allocate dgemm_tile
all";
        assert_eq!(within_columns(33), divided);
        assert_eq!(within_columns(23), divided);
    }

    #[test]
    fn each_part_has_a_column_beside_the_names_however_narrow_the_terminal() {
        assert_eq!(parts(&sample(), &(0..1), 1), [[0, 1], [0, 2], [0, 3]]);
        assert_eq!(parts(&sample(), &(0..2), 24), [vec![0, 1, 2], vec![0, 3]]);
    }
}
