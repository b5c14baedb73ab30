module podwire.dev/xtask/kinds

go 1.24
