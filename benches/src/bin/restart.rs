//! The cost of rolling a call back: `restart [FILTER]`.
//!
//! After Ford et al., Interface and Execution Models in the Fluke Kernel, Table 3. A client sends 4 KB with
//! `client_connect_send_over_receive`, from a page whose translation the kernel knows, must find (a soft fault), or
//! must request from the page's keeper (a hard fault); or its server receives into such a page. Every message uses a
//! page of its own. The counts of all six rows, and the kernel's events in them, show the costs of the remedies and
//! of the repeated work (`docs/bench.md`).
#![no_std]
#![no_main]

extern crate alloc;

use abi::PAGE_SIZE;
use alloc::vec;
use benches::fluke::Door;
use benches::loops::Loop;
use benches::pages::Pages;
use benches::report::{Outcome, Report};
use benches::run::{same, Must, Pair, Role};
use benches::twin::Twin;

rt::entry!(main);

/// Messages of a pass.
const MESSAGES: u64 = 256;

/// What the kernel finds when it uses a page of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// The page is in the page table.
    Present,
    /// The page is not in the page table, but the hierarchy of mappings leads to it: a soft fault.
    Soft,
    /// The hierarchy of mappings has no page: a hard fault, which the keeper resolves.
    Hard,
}

fn main() -> u8 {
    let report = Report::from_arguments();
    let mut good = true;
    for (name, client, page) in [
        ("restart_client_none", true, Page::Present),
        ("restart_client_soft", true, Page::Soft),
        ("restart_client_hard", true, Page::Hard),
        ("restart_server_none", false, Page::Present),
        ("restart_server_soft", false, Page::Soft),
        ("restart_server_hard", false, Page::Hard),
    ] {
        good &= report.bench(name, "rpc", || restart(client, page));
    }
    u8::from(!good)
}

fn restart(client_side: bool, page: Page) -> Outcome {
    let (door, pager) = (Door::new()?, Door::new()?);
    let twin = Twin::new(0, 0).must("a second space")?;
    // One more page than messages: the server already receives into the next page while it answers.
    let mut pages = Pages::new(MESSAGES + 1, &twin, pager.port_ref.handle())?;
    let mut buffer = vec![1u8; PAGE_SIZE as usize];
    let here = (buffer.as_mut_ptr() as u64, 0);
    let there = (pages.base(), PAGE_SIZE);
    let (client_space, from, server_space, to) = if client_side {
        (twin.space_ref.handle(), there, 0, here)
    } else {
        (0, here, twin.space_ref.handle(), there)
    };
    let client = Role::within(
        client_space,
        Loop::RestartClient,
        &[door.port_ref.handle(), PAGE_SIZE, from.0, from.1],
    );
    let server = Role::within(
        server_space,
        Loop::RestartServer,
        &[door.portset.handle(), PAGE_SIZE, to.0, to.1],
    );
    let keeper = pages.keeper(Loop::GrowingKeeper, pager.portset.handle())?;
    if page != Page::Hard {
        pages.supply()?;
    }
    let run = || -> Outcome {
        match page {
            Page::Hard => pages.take_away()?,
            _ => pages.forget()?,
        }
        if page == Page::Present {
            let touch = Role::within(twin.space_ref.handle(), Loop::FaultClient, &[pages.base()]);
            Pair::new(&touch, None)?.run(MESSAGES + 1, 1)?;
        }
        let mut pair = Pair::new(&client, Some(&server))?;
        if page == Page::Hard {
            pair = pair.with(&keeper)?;
        }
        let seen = pair.run(MESSAGES, 1)?;
        same("the sum of results", seen.seen[0], 0)?;
        same("the messages that arrived", seen.seen[1], MESSAGES)?;
        Ok(seen.sample)
    };
    // The first pass is not counted: it fills the caches of the processor and of the kernel.
    run()?;
    run()
}
