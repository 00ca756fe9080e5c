# What every script begins with. The arguments are set before: `base` is the directory of ours below
# the home, `work` the workspace. A relative one is below the home.
case $base in /*) ;; *) base=$HOME/$base ;; esac
case $work in /*) ;; *) work=$HOME/$work ;; esac
B=1000000000000000 # Added to positions in file names, so that names sort like numbers.
# Wakes all that wait for news of the process in $D. The FIFO of each is renamed first: a waiter that
# goes on waiting makes another one, and nobody removes that one in place of this. A subshell has the
# `$$` of its parent, so the name has what the kernel says.
wake() {
    read -r self _ </proc/self/stat
    for fifo in "$D"/w.*; do
        taken=$D/v.$self.${fifo##*/}
        if mv "$fifo" "$taken" 2>/dev/null; then
            echo 1<>"$taken"
            rm -f "$taken"
        fi
    done
}
# Opens the FIFO of waiter $1 at 7, for reading and writing. It looks at the files afterwards, so no news
# is lost.
listen() {
    while :; do
        mkfifo "$D/w.$1" 2>/dev/null
        exec 7<>"$D/w.$1"
        # If it was taken before it was opened, that made an ordinary file.
        if [ -p "$D/w.$1" ]; then return 0; fi
        rm -f "$D/w.$1"
    done
}
# Sets `dir` to the directory that is meant by $1. With a `+` before it, it is made.
command_dir() {
    case $1 in +*) make=1 dir=${1#+} ;; *) make= dir=$1 ;; esac
    case $dir in
    '') dir=$work ;;
    /workspace | /workspace/*) dir=$work${dir#/workspace} ;;
    /*) ;;
    *) dir=$work/$dir ;;
    esac
    if [ -n "$make" ]; then mkdir -p -- "$dir"; fi
}
# Sends signal $1 to every process of session $2 but $spare; false if there was none. What has ended and
# is not reaped does not count: the first process of a sandbox need not reap.
spare=
signal_session() {
    found=1
    for stat in /proc/[0-9]*/stat; do
        line=
        { read -r line <"$stat"; } 2>/dev/null
        name=${stat#/proc/}
        rest=${line##*) }
        case $rest in Z*) continue ;; esac
        # state, parent, process group, session
        rest=${rest#* * * }
        if [ "${rest%% *}" = "$2" ] && [ "${name%/stat}" != "$spare" ] && kill -s "$1" "${name%/stat}" 2>/dev/null; then found=0; fi
    done
    return $found
}
# Kills session $1, also what it starts meanwhile.
kill_session() {
    for _ in 1 2 3 4 5; do
        signal_session KILL "$1" || return 0
    done
}
# When process $1 began, in `began`; empty if it is not there.
when_began() {
    line=
    { read -r line <"/proc/$1/stat"; } 2>/dev/null
    rest=${line##*) }
    began=
    n=0
    for field in $rest; do
        n=$((n + 1))
        if [ $n = 20 ]; then
            began=$field
            return 0
        fi
    done
}
# Whether the process that file $1 names is still there. The file has its number, which becomes `pid`, and
# when it began.
is_running() {
    { read -r pid then <"$1"; } 2>/dev/null || return 1
    when_began "$pid"
    [ "$began" = "$then" ]
}
