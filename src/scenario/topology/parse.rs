//! Reads the table of `nvidia-smi topo -m`: a header of devices, a row for each, a legend.

use super::cells::{Cell, Cells};
use super::{Connection, Device, Topology};
use crate::base::words::shortened;
use crate::scenario::problem::{Place, Problem, Problems, Source};

/// A line without its end, and where it starts in the text.
type Line<'a> = (usize, &'a str);

/// Reads the whole table.
pub(super) fn topology(name: &str, text: &str) -> Result<Topology, Problems> {
    let mut reader = Reader { problems: Vec::new(), devices: Vec::new(), rows: Vec::new(), has_affinity: false };
    reader.table(text);
    if reader.problems.is_empty() {
        reader.fit();
    }
    if reader.problems.is_empty() {
        let connections = reader.rows.iter().map(|row| row.iter().map(|cell| cell.connection).collect()).collect();
        return Ok(Topology { devices: reader.devices, connections });
    }
    Err(Problems::new(vec![Source { name: name.to_owned(), text: text.to_owned() }], reader.problems))
}

/// The line of the header, which begins with a device; only blank lines and the echo of the command may come before.
pub(super) fn header(text: &str) -> Option<Line<'_>> {
    let mut lines = lines(text).filter(|(_, line)| !line.trim().is_empty() && !line.contains("nvidia-smi topo"));
    lines.next().filter(|&(at, line)| Cells::new(line, at).device().is_some())
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line.trim_end_matches(['\n', '\r']))
    })
}

struct Reader {
    problems: Vec<Problem>,
    devices: Vec<Device>,
    /// Per device, its connections.
    rows: Vec<Vec<Cell>>,
    has_affinity: bool,
}

impl Reader {
    fn table(&mut self, text: &str) {
        let Some((at, line)) = header(text) else {
            let hint = "the table begins with a line of devices: GPU0 GPU1 ... CPU Affinity";
            return self.refuse((0, 0), Problem::new("here is no table of `nvidia-smi topo -m`").hint(hint));
        };
        self.header(Cells::new(line, at));
        let mut behind = lines(text).skip_while(|line| line.0 <= at).filter(|(_, line)| !line.trim().is_empty()).peekable();
        while self.problems.is_empty()
            && self.rows.len() < self.devices.len()
            && let Some((at, line)) = behind.next_if(|(_, line)| !is_legend(line))
        {
            self.row(Cells::new(line, at));
        }
        if self.problems.is_empty() && self.rows.len() < self.devices.len() {
            let missing = &self.devices[self.rows.len()].name;
            let place = behind.peek().map_or((text.len(), text.len()), |(at, line)| (*at, at + line.len()));
            let problem =
                Problem::new(format!("the row of {missing} is missing")).allowed("a row for each device, in the header's order");
            return self.refuse(place, problem);
        }
        if self.problems.is_empty() {
            self.legend(behind);
        }
    }

    fn header(&mut self, mut cells: Cells) {
        while let Some(name) = cells.device() {
            if self.devices.iter().any(|device| device.name == name) {
                let problem = Problem::new(format!("{name} stands twice in the header"));
                return self.refuse((cells.at - name.len(), cells.at), problem);
            }
            let device = Device { name: name.to_owned(), is_gpu: name.starts_with("GPU"), ..Device::empty() };
            self.devices.push(device);
        }
        let rest = cells.rest();
        self.has_affinity = rest.starts_with("CPU Affinity");
        if !self.has_affinity && !rest.is_empty() {
            let (word, span) = cells.word();
            let problem = Problem::new(format!("`{}` is no device", shortened(word)));
            self.refuse(span, problem.allowed("GPU0, NIC0, mlx5_0, and behind the last: CPU Affinity"));
        }
    }

    fn row(&mut self, mut cells: Cells) {
        let place = self.rows.len();
        let name = self.devices[place].name.clone();
        let mut start = cells;
        if cells.device() != Some(name.as_str()) {
            let (word, span) = start.word();
            let problem = Problem::new(format!("`{}` stands where the row of {name} should", shortened(word)));
            return self.refuse(span, problem.allowed("a row for each device, in the header's order"));
        }
        let mut row = Vec::with_capacity(self.devices.len());
        while row.len() < self.devices.len() {
            let Some(cell) = cells.connection() else {
                let (word, span) = cells.word();
                let other = &self.devices[row.len()].name;
                let what = if word.is_empty() { "nothing stands".to_owned() } else { format!("`{}` stands", shortened(word)) };
                let problem = Problem::new(format!("{what} where {name} meets {other}"))
                    .allowed("X, NV1 to NV99, PIX, PXB, PHB, NODE, SYS");
                let is_p2p = ["OK", "CNS", "GNS", "TNS", "NS", "U"].contains(&word);
                let hint = if is_p2p {
                    "this is the table of `topo -p2p`; `topo -m` is read"
                } else {
                    "a row has a word for each device"
                };
                return self.refuse(span, problem.hint(hint));
            };
            row.push(cell);
        }
        let rest = cells.rest();
        if !(rest.is_empty() || self.has_affinity && self.devices[place].is_gpu) {
            let problem = Problem::new(format!("`{}` stands behind the row of {name}", shortened(rest.trim_end())));
            return self
                .refuse((cells.at, cells.at + rest.trim_end().len()), problem.allowed("a word for each device, and no more"));
        }
        rest.trim_end().clone_into(&mut self.devices[place].affinity);
        self.rows.push(row);
    }

    /// The names of NICs; what words mean is known.
    fn legend<'a>(&mut self, lines: impl Iterator<Item = Line<'a>>) {
        let mut of_nics = false;
        let mut is_open = false;
        for (at, line) in lines {
            let text = line.trim();
            if is_legend(line) {
                (is_open, of_nics) = (true, text.starts_with("NIC"));
                continue;
            }
            let named = text.split_once(':').filter(|_| of_nics);
            let device = named.and_then(|(name, _)| self.devices.iter_mut().find(|device| device.name == name.trim()));
            match (named, device) {
                (Some((_, called)), Some(device)) => called.trim().clone_into(&mut device.called),
                _ if is_open && !of_nics && text.contains('=') => {}
                _ => {
                    let start = at + line.len() - line.trim_start().len();
                    let problem = Problem::new(format!("`{}` belongs to no row and no legend", shortened(text)));
                    self.refuse((start, start + text.len()), problem);
                }
            }
        }
    }

    /// The diagonal is X and nothing else is, both halves agree, and digits that are glued to a number are told from it by the other half.
    fn fit(&mut self) {
        for row in 0..self.rows.len() {
            for column in 0..self.rows.len() {
                let (cell, mirror) = (self.rows[row][column], self.rows[column][row]);
                let [name, other] = [row, column].map(|place| self.devices[place].name.clone());
                if (row == column) != (cell.connection == Connection::Own) {
                    let message = if row == column {
                        format!("{name} meets itself by {}", cell.connection.word())
                    } else {
                        format!("X stands where {name} meets {other}")
                    };
                    self.refuse(cell.span, Problem::new(message).allowed("X where a device meets itself, and nowhere else"));
                } else if cell.connection != mirror.connection && !self.unglue((row, column), mirror) {
                    let (there, back) = (cell.connection.word(), mirror.connection.word());
                    let problem = Problem::new(format!("{name} meets {other} by {there}, and {other} meets {name} by {back}"));
                    self.refuse(cell.span, problem.allowed("the same in both directions"));
                }
                if let Connection::NvLink(links) = self.rows[row][column].connection
                    && !(1..=99).contains(&links)
                {
                    self.refuse(cell.span, Problem::new(format!("NV{links} is no number of NVLinks")).allowed("NV1 to NV99"));
                }
            }
        }
        if !self.devices.iter().any(|device| device.is_gpu) {
            self.refuse((0, 0), Problem::new("no device of the table is a GPU"));
        }
    }

    /// `NV180-47` is NV18 and the cores 0-47, if the other half says NV18.
    fn unglue(&mut self, (row, column): (usize, usize), mirror: Cell) -> bool {
        let cell = self.rows[row][column];
        let (word, expected) = (cell.connection.word(), mirror.connection.word());
        let Some(glued) = word.strip_prefix(&expected).filter(|_| cell.is_open) else { return false };
        let is_last = column + 1 == self.rows.len() && self.has_affinity;
        if !is_last || !expected.starts_with("NV") || glued.is_empty() {
            return false;
        }
        self.devices[row].affinity.insert_str(0, glued);
        self.rows[row][column].connection = mirror.connection;
        true
    }

    fn refuse(&mut self, span: (usize, usize), problem: Problem) {
        self.problems.push(problem.at(Place { source: 0, span }));
    }
}

impl Device {
    fn empty() -> Self {
        Self { name: String::new(), is_gpu: false, affinity: String::new(), called: String::new() }
    }
}

fn is_legend(line: &str) -> bool {
    matches!(line.trim(), "Legend:" | "NIC Legend:")
}
