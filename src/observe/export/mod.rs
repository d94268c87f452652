//! Exports: a run as text, CSV, SVG, or Perfetto's trace format.
