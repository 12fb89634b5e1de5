# Stops a supervisor's children when the supervisor is gone without a word.
# stdin, one line each: "add PID SIGNAL TENTHS TIER" | "gone PID" | "bye". End of file without "bye" stops all, newest tier first.
trap "" INT TERM HUP
list=
while read -r word pid signal tenths tier; do
  case $word in
    bye) exit 0 ;;
    add) list="$pid:$signal:$tenths:$tier $list" ;;
    gone)
      kept=
      for entry in $list; do [ "${entry%%:*}" = "$pid" ] || kept="$kept$entry "; done
      list=$kept ;;
  esac
done

stop_tier() {
  for child in $1; do
    rest=${child#*:}
    kill -s "${rest%%:*}" "${child%%:*}" 2>/dev/null
  done
  left=$2
  while [ "$left" -gt 0 ]; do
    alive=
    for child in $1; do kill -0 "${child%%:*}" 2>/dev/null && alive=1; done
    [ -z "$alive" ] && break
    sleep 0.1
    left=$((left - 1))
  done
  for child in $1; do
    # In a subshell: dash ends the whole shell on a kill that it can't parse.
    (kill -s KILL -- "-${child%%:*}") 2>/dev/null
  done
}

batch= current= limit=0
for entry in $list; do
  tier=${entry##*:}
  if [ -n "$batch" ] && [ "$tier" != "$current" ]; then
    stop_tier "$batch" "$limit"
    batch= limit=0
  fi
  tenths=${entry%:*}
  tenths=${tenths##*:}
  [ "$tenths" -gt "$limit" ] && limit=$tenths
  current=$tier
  batch="$batch$entry "
done
[ -n "$batch" ] && stop_tier "$batch" "$limit"
exit 0
