//! Files and commands of the simulated objects: the two traits of the edge.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::program::Program;
use super::{SimulatedProvider, ports, terminal};
use crate::sandbox::confined::DirectoryFiles;
use crate::sandbox::{
    ChunkReceiver, ExecEvent, ExecRequest, Execution, FileContent, FileListing, FilePart, Offset,
    PortAccess, ProcessExit, ProcessId, ProcessOutput, ProcessSpec, Processes, Signal, Target,
    Terminal, TerminalRequest, WalkedTree, WorkError, Workspace, WorkspacePath, Written,
    exec_by_spawn,
};

impl SimulatedProvider {
    /// The files of the target's object, if it is up.
    fn files(&self, target: &Target) -> Result<DirectoryFiles, WorkError> {
        self.running(target)?;
        Ok(DirectoryFiles::below(self.processes.workspace(&target.external_id)))
    }
}

#[async_trait]
impl Workspace for SimulatedProvider {
    async fn list_files(
        &self,
        target: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError> {
        self.files(&target)?.list(path, depth).await
    }

    async fn read_file(
        &self,
        target: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        self.files(&target)?.read(path, part).await
    }

    async fn write_file(
        &self,
        target: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        self.files(&target)?.write(path, content).await
    }

    async fn delete_file(&self, target: Target, path: WorkspacePath) -> Result<(), WorkError> {
        self.files(&target)?.delete(path).await
    }

    async fn make_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<Written, WorkError> {
        self.files(&target)?.make_directory(path).await
    }

    async fn move_file(
        &self,
        target: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        self.files(&target)?.relocate(from, to, overwrite).await
    }

    async fn set_file_mode(
        &self,
        target: Target,
        path: WorkspacePath,
        mode: u32,
    ) -> Result<(), WorkError> {
        self.files(&target)?.set_mode(path, mode).await
    }

    async fn pack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        self.files(&target)?.pack(path).await
    }

    async fn unpack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        self.files(&target)?.unpack(path, archive).await
    }

    async fn walk(&self, target: Target) -> Result<WalkedTree, WorkError> {
        self.files(&target)?.walk().await
    }
}

#[async_trait]
impl Processes for SimulatedProvider {
    async fn spawn(&self, target: Target, spec: ProcessSpec) -> Result<ProcessId, WorkError> {
        self.running(&target)?;
        self.processes.spawn(&target, spec)
    }

    async fn tagged(&self, target: Target, tag: &str) -> Result<Option<ProcessId>, WorkError> {
        self.running(&target)?;
        self.processes.tagged(&target, tag)
    }

    async fn attach(
        &self,
        target: Target,
        id: ProcessId,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError> {
        self.running(&target)?;
        self.processes.attach(self.processes.get(&target, &id)?, from)
    }

    async fn write_stdin(
        &self,
        target: Target,
        id: ProcessId,
        bytes: Bytes,
    ) -> Result<(), WorkError> {
        self.running(&target)?;
        let process = self.processes.get(&target, &id)?;
        self.processes.write_stdin(&process, bytes).await
    }

    async fn close_stdin(&self, target: Target, id: ProcessId) -> Result<(), WorkError> {
        self.running(&target)?;
        self.processes.get(&target, &id)?.close_stdin()
    }

    async fn signal(&self, target: Target, id: ProcessId, signal: Signal) -> Result<(), WorkError> {
        self.running(&target)?;
        self.processes.get(&target, &id)?.signal(signal)
    }

    async fn wait(&self, target: Target, id: ProcessId) -> Result<ProcessExit, WorkError> {
        self.running(&target)?;
        let process = self.processes.get(&target, &id)?;
        self.processes.wait(&process).await
    }

    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError> {
        if Program::of(&request.command) != Program::Echo {
            return exec_by_spawn(Arc::new(self.clone()), target, request).await;
        }
        // Nothing of it needs to be kept.
        self.running(&target)?;
        let (events, receiver) = mpsc::channel(2);
        let output = Program::echo(&request.command);
        for event in
            [ExecEvent::Stdout(output.into()), ExecEvent::Exit { code: 0, timed_out: false }]
        {
            events.try_send(event).expect("the channel holds two and its receiver is here");
        }
        Ok(Execution { events: receiver })
    }

    async fn terminal(
        &self,
        target: Target,
        request: TerminalRequest,
    ) -> Result<Terminal, WorkError> {
        terminal::open(self.clone(), target, request)
    }

    async fn port(&self, target: Target, port: u16) -> Result<PortAccess, WorkError> {
        ports::connect(self, &target, port)
    }
}
