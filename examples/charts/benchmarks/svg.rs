//! A picture that is readable on light and dark pages, and on a phone: it is narrow, and its text is large.

use std::fmt::Write;

pub(crate) const WIDTH: f64 = 600.0;

/// Between lines of text.
pub(crate) const LINE: f64 = 24.0;

const STYLE: &str = "<style>\
text{font:17px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:#1f2328}\
.title{font-size:20px;font-weight:600}.head{font-weight:600}.soft{fill:#59636e}.small{font-size:16px;fill:#59636e}\
.back{fill:#fff}.ours{fill:#1f6fb5}.ours2{fill:#7db3e0}.peer{fill:#d9782d}.peer2{fill:#efb98c}.none{fill:#8c959f}\
.none2{fill:#c4cad1}.grid{stroke:#d1d9e0}.line{fill:none;stroke-width:2.5}.line.ours{fill:none;stroke:#1f6fb5}\
.line.peer{fill:none;stroke:#d9782d}.line.none{fill:none;stroke:#8c959f}.dash{stroke-dasharray:5 5;stroke-width:1.5}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.soft,.small{fill:#9da7b3}.back{fill:#0d1117}.grid{stroke:#3d444d}\
.ours{fill:#58a6ff}.ours2{fill:#2f6fb8}.peer{fill:#f0883e}.peer2{fill:#a85f28}.line.ours{stroke:#58a6ff}\
.line.peer{stroke:#f0883e}.none2{fill:#565f69}}\
</style>";

/// Which end of a text is at its place.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

pub(crate) struct Svg(String);

impl Svg {
    /// Begins with a title, below which the first line is at 56.
    pub(crate) fn new(title: &str) -> Self {
        let mut svg = Self(String::new());
        svg.text(12.0, 30.0, Anchor::Start, "title", title);
        svg
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.add(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}>{text}</text>"));
    }

    pub(crate) fn bar(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        self.add(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(crate) fn dot(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        self.add(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" class=\"{class}\"/>"));
    }

    pub(crate) fn line(&mut self, points: &[[f64; 2]], class: &str) {
        let points: Vec<_> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        self.add(&format!("<polyline points=\"{}\" fill=\"none\" class=\"{class}\"/>", points.join(" ")));
    }

    pub(crate) fn end(self, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
             {height}\">\n{STYLE}\n<rect width=\"{WIDTH}\" height=\"{height}\" class=\"back\"/>\n{}</svg>\n",
            self.0
        )
    }

    fn add(&mut self, element: &str) {
        writeln!(self.0, "{element}").expect("text takes all");
    }
}

/// A number with separators of thousands, or with the digits that a small one needs.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{}", (value * 100.0).round() / 100.0);
    }
    let digits = format!("{:.0}", value.abs());
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","))
}
