//! The screen: the list of clusters, the chosen one's details, and which keys there are. A function of the clusters and of the
//! time.

use k8s_openapi::jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Paragraph, Table, TableState};

use super::clusters::{Clusters, Level, Row, TITLES};
use crate::ask::known;
use crate::chain;
use crate::{screen, table};

const KEYS: &str = "up and down choose, page up and page down move the details, q ends";

/// Draws everything.
pub(super) fn screen(frame: &mut Frame<'_>, clusters: &Clusters, now: Timestamp) {
    let rows = clusters.rows();
    // The list gets what it needs, at most half.
    let needed = u16::try_from(rows.len())
        .unwrap_or(u16::MAX)
        .saturating_add(1);
    let list = needed.min(frame.area().height / 2).max(2);
    let parts = [
        Constraint::Length(list),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [top, _, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    draw_list(frame, top, clusters, &rows);
    draw_details(frame, middle, clusters, now);
    let (words, style) = match &clusters.problem {
        Some(why) => (why.as_str(), color(Level::Bad)),
        None => (KEYS, Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(Paragraph::new(Line::styled(words, style)), bottom);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, clusters: &Clusters, rows: &[Row]) {
    let wide = |at: usize| {
        let cells = rows.iter().map(|row| row.cells[at].chars().count());
        let widest = cells.max().unwrap_or(0).max(TITLES[at].len());
        u16::try_from(widest).unwrap_or(u16::MAX)
    };
    // The last column takes what is left.
    let last = TITLES.len() - 1;
    let widths = (0..last).map(|at| Constraint::Length(wide(at)));
    let widths: Vec<Constraint> = widths.chain([Constraint::Min(10)]).collect();
    let lines = rows
        .iter()
        .map(|row| widgets::Row::new(row.cells.clone()).style(color(row.level)));
    let titles = widgets::Row::new(TITLES).style(Style::new().add_modifier(Modifier::BOLD));
    let chosen = Style::new().add_modifier(Modifier::REVERSED);
    let drawn = Table::new(lines, widths)
        .header(titles)
        .column_spacing(2)
        .row_highlight_style(chosen);
    let at = (!rows.is_empty()).then(|| clusters.at());
    let mut state = TableState::new().with_selected(at);
    frame.render_stateful_widget(drawn, area, &mut state);
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, clusters: &Clusters, now: Timestamp) {
    let text = match clusters.chosen() {
        None if !clusters.heard => String::new(),
        None => "there is no EtcdCluster here; -n names another namespace, -A shows all".to_owned(),
        Some(cluster) => match known(cluster.clone()) {
            Ok(cluster) => screen::details(&cluster, now),
            Err(error) => table::wrapped("", &chain(&error)).join("\n"),
        },
    };
    let lines = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
    let above = clusters.above.min(lines.saturating_sub(area.height));
    frame.render_widget(Paragraph::new(Text::raw(text)).scroll((above, 0)), area);
}

fn color(level: Level) -> Style {
    match level {
        Level::Good => Style::new(),
        Level::Moving => Style::new().fg(Color::Yellow),
        Level::Bad => Style::new().fg(Color::Red),
    }
}
