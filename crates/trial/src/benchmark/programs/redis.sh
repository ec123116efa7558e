# A server under load and then with most of its keys deleted; the client runs without the preload.
# Debian links the server with jemalloc: behind what is preloaded stands libc, so that without an allocator its own serves.
preload=${LD_PRELOAD:+$LD_PRELOAD:}libc.so.6
unset LD_PRELOAD
LD_PRELOAD=$preload redis-server --save '' --appendonly no --port 0 --unixsocket "$PWD/socket" --loglevel warning &
server=$!
until redis-cli -s "$PWD/socket" ping 2>/dev/null | grep -q PONG; do
  kill -0 "$server" 2>/dev/null || { wait "$server"; echo "redis-server ended at its start, status $?"; exit 1; }
  sleep 0.01
done
redis-benchmark -q -s "$PWD/socket" -n 100000 -c 20 -P 8 -r 200000 -d 400 -t set,lpush,hset >/dev/null
redis-benchmark -q -s "$PWD/socket" -n 60000 -c 20 -P 8 -r 200000 get __rand_int__ >/dev/null
redis-cli -s "$PWD/socket" shutdown nosave
wait "$server"
