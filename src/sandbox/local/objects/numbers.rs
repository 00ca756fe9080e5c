//! Numbers of detached processes, and the files for their output.

use std::fs::File;

use super::LocalObjects;
use crate::sandbox::WorkError;
use crate::sandbox::local::link::broken;

impl LocalObjects {
    /// A number that no process has had, and the file for its output. The number is a time, so that it is
    /// new after a restart of the server, too.
    pub async fn new_process(&self) -> Result<(u64, File), WorkError> {
        let number = self.ids.unix_ns().unsigned_abs();
        let file = self.blocking(move |disk| disk.unnamed_file(&format!("output-{number}"))).await;
        Ok((number, file.map_err(broken)?))
    }
}
