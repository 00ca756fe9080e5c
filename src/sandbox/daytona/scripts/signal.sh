# Sends a signal to the session of a process. Arguments: number, signal.
D=$base/p/$1
if [ ! -e "$D/started" ]; then
    echo '!none'
elif [ ! -e "$D/exit" ] && read -r pid <"$D/pid"; then
    if [ "$2" = KILL ]; then kill_session "$pid"; else signal_session "$2" "$pid"; fi
    echo sent
else
    echo ended
fi
