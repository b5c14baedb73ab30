//! The program in the demo's and the tests' images: one static file, a few verbs, only the standard library.
//!
//! `serve [PORT]` answers HTTP with the pod's name and logs each request; `get URL` fetches one; `dial` speaks at once; `listen
//! TCP/80 UDP/80 ...` answers on many ports and `probe` tries many, all at once; the rest are
//! the small verbs that tests need (`echo`, `env`, `cat`, `write`, `absent`, `sleep`, `exit`, `spin`, `eat`, `log`, and
//! `key-*` for the kernel's keys).
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, missing_docs, unsafe_code)]

#[path = "pod-app/sctp.rs"]
mod sctp;

use std::{
    env,
    ffi::CString,
    fs,
    io::{BufRead, BufReader, IsTerminal, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket},
    os::unix::process::CommandExt,
    process::ExitCode,
    time::Duration,
};

fn main() -> ExitCode {
    if let Some(code) = by_name(&env::args().next().unwrap_or_default()) {
        return code;
    }
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] => serve("80"),
        ["serve"] => serve("80"),
        ["serve", port] => serve(port),
        ["get", url] => get(url),
        ["dial", address, seconds] => dial(address, seconds.parse().unwrap_or(3600)),
        ["listen", ports @ ..] => listen(ports),
        ["probe"] => probe(),
        ["echo", rest @ ..] => line(&rest.join(" ")),
        ["env", name] => line(&env::var(name).unwrap_or_default()),
        ["env"] => env::vars().try_for_each(|(name, value)| line(&format!("{name}={value}"))),
        ["tty"] => line(if std::io::stdin().is_terminal() { "a terminal" } else { "no terminal" }),
        ["hostname"] => print_file("/proc/sys/kernel/hostname"),
        ["cat", path] => print_file(path),
        ["cat"] => std::io::copy(&mut std::io::stdin(), &mut std::io::stdout()).map(|_| ()),
        ["ls", path] => list(path),
        ["write", path, text] => fs::write(path, format!("{text}\n")),
        ["sleep", seconds] => {
            sleep(seconds.parse().unwrap_or(3600));
            Ok(())
        }
        ["absent", path] if fs::metadata(path).is_ok() => return ExitCode::FAILURE,
        ["absent", _] => Ok(()),
        ["exit-when", path, code] => {
            end_on_term();
            while fs::metadata(path).is_err() {
                std::thread::sleep(Duration::from_millis(20));
            }
            return ExitCode::from(code.parse::<u8>().unwrap_or(1));
        }
        ["exit", code] => return ExitCode::from(code.parse::<u8>().unwrap_or(1)),
        ["log", count, millis] => log(count.parse().unwrap_or(1), millis.parse().unwrap_or(100)),
        ["eat", megabytes] => eat(megabytes.parse().unwrap_or(1)),
        ["key-session", name, program, rest @ ..] => key_session(name, program, rest),
        ["key-hold", name] => {
            add_key(name).and_then(|()| line("holds the key")).map(|()| sleep(u64::MAX / 4))
        }
        ["key-find", names @ ..] => find_keys(names),
        ["spin"] => loop {
            std::hint::spin_loop();
        },
        other => {
            eprintln!("pod-app: no verb {other:?}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pod-app: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Under another name it is what images of that name promise: a sandbox's process, a web server, a set-uid probe.
fn by_name(name: &str) -> Option<ExitCode> {
    let port = env::args().nth(1).unwrap_or_else(|| "80".to_owned());
    let done = match name.rsplit('/').next().unwrap_or(name) {
        "pause" => {
            sleep(u64::MAX / 4);
            Ok(())
        }
        "nnp" => line(&format!("Effective uid: {}", rustix::process::geteuid().as_raw())),
        "httpd" => line("httpd started").and_then(|()| serve(&port)),
        // Called again with the words that a real one shows in its command line.
        "nginx" => {
            Err(std::process::Command::new(name).arg0("nginx: master process nginx").arg(&port).exec())
        }
        "nginx: master process nginx" => fs::create_dir_all("/var/run")
            .and_then(|()| fs::write("/var/run/nginx.pid", format!("{}\n", std::process::id())))
            .and_then(|()| serve(&port)),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn line(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{text}")
}

fn print_file(path: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(&fs::read(path)?)
}

fn list(path: &str) -> std::io::Result<()> {
    let mut names: Vec<String> = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().display().to_string()))
        .collect::<std::io::Result<_>>()?;
    names.sort();
    names.iter().try_for_each(|name| line(name))
}

/// The keyring of this session.
const SESSION: libc::c_long = -3;

/// One call of keyctl with up to four words.
fn keyctl(words: [libc::c_long; 5]) -> std::io::Result<libc::c_long> {
    let [verb, a, b, c, d] = words;
    // SAFETY: the callers pass numbers and addresses of texts that outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, verb, a, b, c, d) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(done) }
}

/// Runs a program in a new session of keys that holds this one, as a login or systemd does.
fn key_session(name: &str, program: &str, args: &[&str]) -> std::io::Result<()> {
    const JOIN: libc::c_long = 1;
    keyctl([JOIN, 0, 0, 0, 0])?;
    add_key(name)?;
    Err(std::process::Command::new(program).args(args).exec())
}

fn add_key(name: &str) -> std::io::Result<()> {
    let name = CString::new(name)?;
    let (kind, secret) = (c"user".as_ptr(), c"hidden".as_ptr());
    // SAFETY: add_key reads three texts that outlive the call, of the third as many bytes as it is told.
    let made = unsafe { libc::syscall(libc::SYS_add_key, kind, name.as_ptr(), secret, 6usize, SESSION) };
    if made < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn has_key(name: &str) -> std::io::Result<bool> {
    const SEARCH: libc::c_long = 10;
    let name = CString::new(name)?;
    Ok(keyctl([SEARCH, SESSION, c"user".as_ptr() as libc::c_long, name.as_ptr() as libc::c_long, 0]).is_ok())
}

/// Looks for keys that others hold, then for one of its own, so that finding nothing means something.
fn find_keys(names: &[&str]) -> std::io::Result<()> {
    for name in names {
        if has_key(name)? {
            line(&format!("ESCAPED: found {name}"))?;
        }
    }
    add_key("own")?;
    line(if has_key("own")? { "PROBED" } else { "does not find its own" })
}

extern "C" fn stop(_: libc::c_int) {
    // SAFETY: _exit is async-signal-safe and does not return.
    unsafe { libc::_exit(0) }
}

/// Ends on SIGTERM at once: the kernel gives PID 1 no default action, so it must say so itself.
fn end_on_term() {
    // SAFETY: the handler only calls _exit; sigaction is given a zeroed, valid structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

fn sleep(seconds: u64) {
    end_on_term();
    std::thread::sleep(Duration::from_secs(seconds));
}

fn serve(port: &str) -> std::io::Result<()> {
    end_on_term();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let listener = TcpListener::bind(format!("[::]:{port}"))
        .or_else(|_| TcpListener::bind(format!("0.0.0.0:{port}")))?;
    line(&format!("listening on {port}"))?;
    loop {
        let (stream, peer) = listener.accept()?;
        if let Err(error) = answer(stream, &name, &peer.to_string()) {
            eprintln!("request from {peer}: {error}");
        }
    }
}

fn answer(stream: TcpStream, name: &str, peer: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = first.split_whitespace().nth(1).unwrap_or("/");
    let (code, body) = match path {
        "/fail" => ("500 Internal Server Error", "failing as asked\n".to_owned()),
        _ => ("200 OK", format!("hello from {name}\n")),
    };
    line(&format!("{} {path} from {peer}", first.split_whitespace().next().unwrap_or("?")))?;
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn get(url: &str) -> std::io::Result<()> {
    let rest = url.trim_start_matches("http://");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let colon_is_port =
        host.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
    let address = if colon_is_port { host.to_owned() } else { format!("{host}:80") };
    let found = address.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&found, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    print!("{body}");
    if head.split_whitespace().nth(1) == Some("200") {
        return Ok(());
    }
    Err(std::io::Error::other(head.lines().next().unwrap_or("no answer").to_owned()))
}

/// Speaks before it does anything else, then goes on speaking.
fn dial(address: &str, seconds: u64) -> std::io::Result<()> {
    let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for _ in 0..20 {
        // Ignored: what may not be sent does not arrive, which is the point.
        socket.send_to(b"first", address).ok();
    }
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    line("dialled")?;
    sleep(seconds);
    Ok(())
}

/// Listens on ports written as `TCP/80`, `UDP/80` and `SCTP/80`, of both families, and answers everybody with what they say.
fn listen(ports: &[&str]) -> std::io::Result<()> {
    end_on_term();
    let wrong = || std::io::Error::other("ports are written as TCP/80");
    let mut running = Vec::new();
    for text in ports {
        let (protocol, port) = text.split_once('/').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        running.push(match protocol {
            "TCP" => {
                let listener = TcpListener::bind(("::", port))?;
                std::thread::Builder::new().spawn(move || accept_all(&listener))?
            }
            "UDP" => {
                let socket = UdpSocket::bind(("::", port))?;
                std::thread::Builder::new().spawn(move || echo_all(&socket))?
            }
            "SCTP" => {
                let listener = sctp::listen(port)?;
                std::thread::Builder::new().spawn(move || sctp::accept_all(&listener))?
            }
            _ => return Err(wrong()),
        });
    }
    line("listening")?;
    running.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

fn accept_all(listener: &TcpListener) {
    loop {
        // Ignored: a connection that ended before it was taken.
        drop(listener.accept());
    }
}

fn echo_all(socket: &UdpSocket) {
    let mut buffer = [0; 64];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // Ignored: whoever is gone needs no answer.
            drop(socket.send_to(&buffer[..length], from));
        }
    }
}

/// Reads lines such as `200 TCP/10.0.0.7/80 UDP/fd00::7/53 SCTP/10.0.0.7/80` and tries all of a line at once, each for so many
/// milliseconds; answers with a line of one letter each: `1` answered, `0` silence, `r` refused or worse.
fn probe() -> std::io::Result<()> {
    for text in std::io::stdin().lines() {
        let text = text?;
        let mut words = text.split_whitespace();
        let limit = Duration::from_millis(words.next().and_then(|word| word.parse().ok()).unwrap_or(200));
        let small = || std::thread::Builder::new().stack_size(64 << 10);
        let tries: Vec<_> = words
            .map(|word| {
                let word = word.to_owned();
                small().spawn(move || attempt(&word, limit).unwrap_or('r'))
            })
            .collect::<std::io::Result<_>>()?;
        let letters: String = tries.into_iter().map(|one| one.join().unwrap_or('r')).collect();
        line(&letters)?;
    }
    Ok(())
}

fn attempt(text: &str, limit: Duration) -> Option<char> {
    let mut parts = text.split('/');
    let (protocol, address, port) = (parts.next()?, parts.next()?, parts.next()?);
    let to = SocketAddr::new(address.parse::<IpAddr>().ok()?, port.parse().ok()?);
    if protocol == "TCP" {
        return Some(match TcpStream::connect_timeout(&to, limit) {
            Ok(stream) => {
                // Reset rather than closed: nobody remembers it for minutes, as thousands of them would be.
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).ok();
                '1'
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => '0',
            Err(_) => 'r',
        });
    }
    if protocol == "SCTP" {
        return sctp::attempt(to, limit).ok();
    }
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect(to).ok()?;
    // Twice: a datagram may be lost on a busy machine.
    socket.set_read_timeout(Some(limit / 2)).ok()?;
    let mut answer = [0; 8];
    for _ in 0..2 {
        socket.send(b"hello").ok()?;
        match socket.recv(&mut answer) {
            Ok(_) => return Some('1'),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Some('r'),
        }
    }
    Some('0')
}

fn log(count: u64, millis: u64) -> std::io::Result<()> {
    end_on_term();
    for number in 0..count {
        line(&format!("line {number}"))?;
        std::thread::sleep(Duration::from_millis(millis));
    }
    Ok(())
}

fn eat(megabytes: usize) -> std::io::Result<()> {
    let mut eaten = Vec::new();
    for _ in 0..megabytes {
        eaten.push(vec![1_u8; 1024 * 1024]);
    }
    line(&format!("ate {}", eaten.len()))
}
