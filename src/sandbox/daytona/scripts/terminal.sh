# Terminals: prepares one, sends signals to what works at it, ends it. What is at a terminal is the session of a
# shell that the toolbox started and that has become `run`. Arguments: operation, id of the terminal, and
# what the operation needs.
# What `$T.pid` names is the shell that reports the end.
T=$base/t/$2
case $1 in
open)
    # text of `run`, directory (with a `+` before it, it is made), number of variables, variables,
    # program and its arguments
    run=$3 dir=$4 count=$5
    umask 077
    # The toolbox's shell begins without anybody's settings, and keeps no history.
    mkdir -p "$base/t/home" && : >"$base/t/home/.zshrc"
    find "$base/t" -maxdepth 1 -type f -mtime +0 -exec rm -f {} + 2>/dev/null
    command_dir "$dir"
    shift 5
    if ! cd -- "$dir" 2>/dev/null; then
        echo "fail dir $dir"
        exit
    fi
    check='command -v "$1" >/dev/null 2>&1 && exit; [ -e "$1" ] && exit 126; exit 127'
    n=0
    for word; do
        if [ $n = 0 ]; then set --; fi
        if [ $n = "$count" ]; then
            set -- "$@" sh -c "$check" sh "$word"
            break
        fi
        set -- "$@" "$word"
        n=$((n + 1))
    done
    env "$@"
    case $? in
    0) ;;
    126) echo "fail exec $word" && exit ;;
    *) echo "fail none $word" && exit ;;
    esac
    printf %s "$run" >"$T.run"
    export -p >"$T.env"
    printf %s "$T" | base64
    echo :
    printf %s "$dir" | base64
    ;;
signal)
    if is_running "$T.pid"; then
        # state, parent, process group, session, terminal, foreground process group
        read -r line <"/proc/$pid/stat"
        rest=${line##*) }
        rest=${rest#* * * * * }
        kill -s "$3" -- "-${rest%% *}" 2>/dev/null
    fi
    echo sent
    ;;
kill)
    if is_running "$T.pid"; then
        spare=$pid
        kill_session "$pid"
    fi
    echo sent
    ;;
end)
    if is_running "$T.pid"; then
        signal_session HUP "$pid"
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            signal_session 0 "$pid" || break
            sleep 0.1 2>/dev/null || sleep 1
        done
        kill_session "$pid"
    fi
    rm -f "$T.pid" "$T.env" "$T.run"
    echo ended
    ;;
esac
