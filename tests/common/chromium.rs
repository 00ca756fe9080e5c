//! How tests start Chromium: headless, without a request of its own.

/// The arguments of a browser that runs as root, without a window, and looks up nothing by itself.
pub const ARGUMENTS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
];
