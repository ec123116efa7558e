# 200 threads of a JVM that compress: zlib's memory comes from malloc, in threads that then wait.
exec java -Xmx256m -XX:+UseSerialGC -cp . Zip
