//! Programs run: makespans, peaks, and equality with one device.

mod smoke;
