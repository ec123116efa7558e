# Compiled once and not measured: a compiler takes as much memory as the program.
cat >Zip.java <<'JAVA'
import java.util.zip.*;
public class Zip {
    public static void main(String[] a) throws Exception {
        Thread[] threads = new Thread[200];
        for (int t = 0; t < threads.length; t++) {
            int seed = t;
            threads[t] = new Thread(() -> {
                byte[] in = new byte[1 << 15], out = new byte[1 << 16];
                new java.util.Random(seed).nextBytes(in);
                for (int round = 0; round < 12; round++) {
                    Deflater d = new Deflater();
                    d.setInput(in); d.finish();
                    int n = d.deflate(out);
                    d.end();
                    Inflater i = new Inflater();
                    i.setInput(out, 0, n);
                    try { if (i.inflate(in) != in.length) System.exit(1); } catch (DataFormatException e) { System.exit(1); }
                    i.end();
                }
                try { Thread.sleep(300); } catch (InterruptedException e) { }
            });
            threads[t].start();
        }
        for (Thread t : threads) t.join();
    }
}
JAVA
exec javac Zip.java
