//! The forms that tables for people have.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

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
