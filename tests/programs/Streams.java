import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.DeflaterOutputStream;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import java.util.zip.InflaterInputStream;

/** Streams THREADS ROUNDS LIBRARY: native memory from many threads, every byte checked by its CRC. */
public class Streams {
    private static final AtomicLong rounds = new AtomicLong();
    private static final AtomicLong wrong = new AtomicLong();

    public static void main(String[] words) throws Exception {
        String library = words[2];
        if (Files.lines(Path.of("/proc/self/maps")).noneMatch(line -> line.endsWith(library))) {
            throw new IllegalStateException(library + " is not loaded");
        }
        int threads = Integer.parseInt(words[0]);
        var running = new ArrayList<Thread>();
        for (int index = 0; index < threads; index++) {
            int seed = index;
            var thread = new Thread(() -> work(seed, Integer.parseInt(words[1])));
            thread.setUncaughtExceptionHandler((t, error) -> { error.printStackTrace(); wrong.incrementAndGet(); });
            thread.start();
            running.add(thread);
        }
        for (var thread : running) {
            thread.join();
        }
        if (wrong.get() != 0) {
            System.err.println(wrong + " wrong");
            System.exit(1);
        }
        System.out.println(threads + " threads, " + rounds + " rounds, all checksums right");
    }

    private static void work(int seed, int count) {
        var random = new SplittableRandom(seed);
        var kept = new ArrayList<ByteBuffer>();
        var sums = new ArrayList<Long>();
        for (int round = 0; round < count; round++) {
            try {
                byte[] data = data(random);
                long sum = sum(ByteBuffer.wrap(data));
                check(sum, sum(ByteBuffer.wrap(inflated(deflated(data, random.nextInt(10))))));
                check(sum, sum(ByteBuffer.wrap(gunzipped(gzipped(data)))));
                ByteBuffer direct = ByteBuffer.allocateDirect(data.length);
                direct.put(data).flip();
                kept.add(direct);
                sums.add(sum);
                if (kept.size() > 4) {
                    int victim = random.nextInt(kept.size());
                    check(sums.remove(victim), sum(kept.remove(victim)));
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            rounds.incrementAndGet();
        }
        for (int index = 0; index < kept.size(); index++) {
            check(sums.get(index), sum(kept.get(index)));
        }
    }

    /** Up to 100,000 bytes, half of them compressible. */
    private static byte[] data(SplittableRandom random) {
        byte[] data = new byte[1 + random.nextInt(100_000)];
        for (int index = 0; index < data.length; index++) {
            data[index] = (byte) (index < data.length / 2 ? index / 7 : random.nextInt(256));
        }
        return data;
    }

    private static long sum(ByteBuffer data) {
        var sum = new CRC32();
        sum.update(data.duplicate());
        return sum.getValue();
    }

    private static void check(long expected, long seen) {
        if (expected != seen) {
            wrong.incrementAndGet();
        }
    }

    private static byte[] deflated(byte[] data, int level) throws Exception {
        var bytes = new ByteArrayOutputStream();
        var deflater = new Deflater(level);
        try (var stream = new DeflaterOutputStream(bytes, deflater)) {
            stream.write(data);
        } finally {
            deflater.end();
        }
        return bytes.toByteArray();
    }

    private static byte[] inflated(byte[] data) throws Exception {
        try (var stream = new InflaterInputStream(new ByteArrayInputStream(data))) {
            return stream.readAllBytes();
        }
    }

    private static byte[] gzipped(byte[] data) throws Exception {
        var bytes = new ByteArrayOutputStream();
        try (var stream = new GZIPOutputStream(bytes)) {
            stream.write(data);
        }
        return bytes.toByteArray();
    }

    private static byte[] gunzipped(byte[] data) throws Exception {
        try (var stream = new GZIPInputStream(new ByteArrayInputStream(data))) {
            return stream.readAllBytes();
        }
    }
}
